"""``aioproducer fake-broker``: runs a fake broker for development, and prints the records that arrive."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import positive
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    import ssl

    from aioproducer.testing import FakeBroker, LoggedBatch, LoggedRecord, Logins

__all__ = ["VERB", "sigterm_as_interrupt", "topic_and_partitions"]

_EPILOG: Final = """\
examples:
  aioproducer fake-broker
  aioproducer fake-broker --port 0 --topic orders:6 --no-auto-create --json
  aioproducer fake-broker --brokers 3 --versions 2.8
  aioproducer fake-broker --user alice:wonderland --mechanism SCRAM-SHA-256 --tls-cert cert.pem --tls-key key.pem

It keeps all records in memory, and loses them when it ends.

exit codes:
  0  Ctrl-C, or SIGTERM, ended it
  2  it could not run, for example because the port is in use
"""

_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, "OAUTHBEARER")
_DAY_S: Final = 86_400.0
_LAST_PORT: Final = 65_535


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at; default: 127.0.0.1")
    parser.add_argument(
        "--advertise", metavar="HOST", help="the host that clients are sent to; default: that of --host"
    )
    parser.add_argument(
        "--port", type=_port, default=9092, help="the first broker's port, the others follow; 0: any; default: 9092"
    )
    parser.add_argument("--brokers", type=positive, default=1, metavar="N", help="number of brokers; default: 1")
    parser.add_argument(
        "--topic", dest="topics", type=topic_and_partitions, action="append", default=[], metavar="NAME[:PARTITIONS]",
        help="a topic to create; may be repeated",
    )  # fmt: skip
    parser.add_argument("--no-auto-create", action="store_true", help="do not create topics on demand")
    parser.add_argument("--versions", metavar="RELEASE", help="support the requests of this Kafka release, such as 2.8")
    parser.add_argument(
        "--user", dest="users", type=_user, action="append", default=[], metavar="NAME:PASSWORD",
        help="require a login, and accept this one; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--mechanism", dest="mechanisms", choices=_MECHANISMS, action="append", default=[],
        help="a mechanism of logins, may be repeated; default: PLAIN and SCRAM; OAUTHBEARER accepts any token",
    )  # fmt: skip
    parser.add_argument("--tls-cert", metavar="FILE", help="use TLS, with this certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="its key; default: in the file of the certificate")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the address, no records")
    parser.add_argument("--json", action="store_true", help="print JSON: an object for the address and for each record")


def topic_and_partitions(text: str) -> tuple[str, int]:
    """NAME or NAME:PARTITIONS for argparse."""
    name, colon, partitions = text.partition(":")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME[:PARTITIONS]")
    return name, positive(partitions) if colon else 1


def _user(text: str) -> tuple[str, str]:
    name, _, password = text.partition(":")
    if not (name and password):
        raise argparse.ArgumentTypeError("must be NAME:PASSWORD")  # not shown: it may be a password
    return name, password


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"must be 0 to {_LAST_PORT}")
    return port


@contextmanager
def sigterm_as_interrupt() -> Generator[None]:
    """A block that SIGTERM ends with KeyboardInterrupt, as Ctrl-C does, so that everything is closed."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.testing import FakeBroker

    more: dict[str, Any] = {} if options.versions is None else {"versions": options.versions}
    if options.port + options.brokers - 1 > _LAST_PORT:
        raise Trouble(f"--brokers {options.brokers} from port {options.port} on need ports above {_LAST_PORT}.")
    broker = FakeBroker(
        options.brokers,
        dict(options.topics),
        auto_create_topics=not options.no_auto_create,
        host=options.host,
        tls=_tls(options),
        logins=_logins(options),
        **more,
    )
    with sigterm_as_interrupt():
        try:
            _start(broker, options)
            _announce(broker, options)
            _print_records(broker, options)
        except KeyboardInterrupt:
            pass
        finally:
            broker.close()
    return ExitCode.OK


VERB: Final = Verb("fake-broker", "Run a fake broker for development, which prints what arrives.", _configure, _run)


def _start(broker: FakeBroker, options: argparse.Namespace) -> None:
    try:
        broker.start()
        if options.port:
            # A fake broker listens at any port, but a node that was stopped returns to the port that its entry names.
            for number, node in enumerate(broker.cluster.nodes.values()):
                node.port = options.port + number
                broker.stop_node(node.node_id)
                broker.start_node(node.node_id)
    except OSError as error:
        at = f"port {options.port}" + (f" to {options.port + options.brokers - 1}" if options.brokers > 1 else "")
        raise Trouble(
            f"Cannot listen at {options.host}, {at}: {error.strerror or error}. Use --host and --port (0: any port)."
        ) from error
    if options.advertise is not None:
        for node in broker.cluster.nodes.values():
            node.host = options.advertise


def _announce(broker: FakeBroker, options: argparse.Namespace) -> None:
    needs = _needs(options)
    if options.json:
        _print_json({"bootstrap_servers": broker.bootstrap_servers, "options": needs})
        return
    print(f"Fake broker at {broker.bootstrap_servers}; Ctrl-C ends it.", flush=True)
    if needs:
        print(f"Clients need {' '.join(f'{name}={value}' for name, value in needs.items())}", flush=True)


def _needs(options: argparse.Namespace) -> dict[str, str]:
    """The options that a client needs besides the address and a password."""
    uses_sasl, uses_tls = bool(options.users or options.mechanisms), options.tls_cert is not None
    if not (uses_sasl or uses_tls):
        return {}
    protocol = ("SASL_" if uses_sasl else "") + ("SSL" if uses_tls else "PLAINTEXT")
    login = {"sasl.mechanism": _mechanisms(options)[0]} if uses_sasl else {}
    return {"security.protocol": protocol, **login}


def _print_records(broker: FakeBroker, options: argparse.Namespace) -> None:
    """Print each record, until Ctrl-C."""
    from aioproducer.errors import KafkaTimeoutError

    arrivals = _Arrivals()
    while True:
        try:
            broker.wait_for(arrivals.find, _DAY_S)
        except KafkaTimeoutError:
            continue
        for batch in arrivals.take():
            for record in () if options.quiet else batch.records:
                if options.json:
                    _print_json(_as_json(record))
                else:
                    print(_as_line(record), flush=True)


class _Arrivals:
    """The batches that were written since the last call of `take`."""

    def __init__(self) -> None:
        self._found: list[LoggedBatch] = []
        self._next_offsets: dict[tuple[object, int], int] = {}

    def find(self, broker: FakeBroker) -> bool:
        """Collect new batches; called with the broker's lock held. Returns whether there are any."""
        broker.forget_requests()  # they would fill the memory
        for topic in broker.cluster.topics.values():
            for partition in topic.partitions:
                place = topic.topic_id, partition.index  # a topic that is created again begins at 0
                first = self._next_offsets.get(place, 0)
                new: list[LoggedBatch] = []
                for batch in reversed(partition.log.batches):
                    if batch.base_offset < first:
                        break
                    new.append(batch)
                if new:
                    self._next_offsets[place] = new[0].last_offset + 1
                    self._found += reversed(new)
        return bool(self._found)

    def take(self) -> Sequence[LoggedBatch]:
        """Return the new batches, and forget them."""
        found, self._found = self._found, []
        return found


def _as_line(record: LoggedRecord) -> str:
    headers = ", ".join(f"{_escaped(name.encode())}={_escaped(value)}" for name, value in record.headers)
    parts = [f"{record.topic}-{record.partition} @ {record.offset}", _escaped(record.key), _escaped(record.value)]
    return "  ".join([*parts, headers] if headers else parts)


def _escaped(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _as_json(record: LoggedRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
        "headers": [[name, _json_bytes(value)] for name, value in record.headers],
    }


def _json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Text if it is UTF-8, else an object with the bytes in base64."""
    import base64

    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def _print_json(found: object) -> None:
    import json

    print(json.dumps(found), flush=True)


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.tls_cert is None:
        if options.tls_key is not None:
            raise Trouble("--tls-key needs --tls-cert.")
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise Trouble(f"The certificate and key cannot be used: {error.strerror or error}. Give PEM files.") from error
    return context


def _logins(options: argparse.Namespace) -> Logins | None:
    if not (options.users or options.mechanisms):
        return None
    from aioproducer.testing import Logins

    mechanisms = _mechanisms(options)
    if not options.users and mechanisms != ["OAUTHBEARER"]:
        raise Trouble("--mechanism needs --user NAME:PASSWORD, unless it is OAUTHBEARER.")
    return Logins(dict(options.users), mechanisms)


def _mechanisms(options: argparse.Namespace) -> list[str]:
    """The given mechanisms, or all with passwords for which there is a library."""
    from aioproducer.cli.extras import is_installed, require

    given = list(dict.fromkeys(options.mechanisms or _PASSWORD_MECHANISMS))
    if any(each.startswith("SCRAM") for each in options.mechanisms):
        require("A SCRAM login", ["scramp"], "testing")
    return [each for each in given if is_installed("scramp") or not each.startswith("SCRAM")]
