"""librdkafka's configuration, translated to the options of `aioproducer.Producer`, with a report of what differs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast

from aioproducer._config.compression import named_codecs
from aioproducer._config.java_keys import BY_JAVA_KEY
from aioproducer._config.names import librdkafka_option
from aioproducer._config.neighbours import is_of_another
from aioproducer._config.option import read_option
from aioproducer._config.options import OPTIONS
from aioproducer.config import OAuthToken, ProducerOptions
from aioproducer.contrib.confluent.failures import invalid
from aioproducer.contrib.confluent.keys import ALIASES, DEFAULTS, DIRECT, IGNORED, REFUSED, REFUSED_UNLESS
from aioproducer.contrib.confluent.records import DeliveryCallback
from aioproducer.errors import ConfigError

__all__ = ["Credentials", "Translation", "translate"]

_INT_MAX: Final = 2**31 - 1
#: A script that ends with its broker gone must not hang; an explicit close() waits as long as the records have.
_AT_EXIT_MS: Final = 10_000
#: The highest level of gzip, and the highest that librdkafka accepts for any codec.
_GZIP_MOST: Final = 9
_LEVEL_MOST: Final = 12
_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb")
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Credentials:
    """The user name and password for each login, which ``set_sasl_credentials()`` replaces."""

    def __init__(self, username: str, password: str) -> None:
        self._pair = (username, password)

    def replace(self, username: str, password: str) -> None:
        """Use these from the next login on."""
        self._pair = (username, password)

    def __call__(self) -> tuple[str, str]:
        return self._pair


@dataclass(frozen=True)
class Translation:
    """The meaning of a configuration of librdkafka for aioproducer.

    ``options`` are those of `aioproducer.Producer`. ``ignored`` has the keys without effect, each with the reason;
    ``differences`` the keys that mean something else here. ``max_messages`` and ``max_bytes`` limit what waits in the queue.
    """

    bootstrap_servers: tuple[str, ...]
    options: ProducerOptions
    ignored: Mapping[str, str]
    differences: Mapping[str, str]
    max_messages: int
    max_bytes: int
    on_delivery: DeliveryCallback | None = None
    error_cb: Callable[[Any], object] | None = None
    only_errors: bool = False
    credentials: Credentials | None = field(default=None, repr=False)

    @property
    def delivery_s(self) -> float:
        """The time in which every record gets its outcome, in seconds."""
        return self.options.get("delivery_timeout_ms", _INT_MAX) / 1_000


def translate(conf: Mapping[str, object]) -> Translation:
    """Return the options for a configuration of librdkafka's keys, with its defaults.

    Raises `KafkaException` with ``_INVALID_ARG`` for an unknown key, an invalid value, and a key that matters and cannot be
    honoured; TypeError for a callback that cannot be called.
    """
    if not isinstance(cast("object", conf), Mapping):
        raise TypeError("expected configuration dict")
    try:
        return _Reading(conf).translation()
    except ConfigError as error:
        raise invalid(str(error), error) from error


class _Reading:
    """Reads one configuration."""

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._ignored: dict[str, str] = {}
        self._differences: dict[str, str] = {}
        self._options: dict[str, object] = {}
        self._hooks: dict[str, Any] = {}
        self._given = self._plain(conf)

    def translation(self) -> Translation:
        """Return the result."""
        for key, value in self._given.items():
            self._read(key, value)
        for option, value in DEFAULTS.items():
            self._options.setdefault(option, value)
        self._adjust_level()
        self._adjust_times()
        self._adjust_idempotence()
        self._adjust_security()
        servers = cast("tuple[str, ...]", self._options.pop("bootstrap_servers", ()))
        if not servers:
            raise ConfigError("bootstrap.servers is missing.")
        messages = self._whole("queue.buffering.max.messages", 100_000, 0) or _INT_MAX
        max_bytes = self._whole("queue.buffering.max.kbytes", 1_048_576, 1) * 1_024
        self._options["buffer_memory"] = self._memory(max_bytes)
        return Translation(
            servers,
            cast("ProducerOptions", self._options),
            MappingProxyType(self._ignored),
            MappingProxyType(self._differences),
            messages,
            max_bytes,
            self._hooks.get("on_delivery"),
            self._hooks.get("error_cb"),
            str(self._given.get("delivery.report.only.error", False)).lower() == "true",
            self._hooks.get("credentials"),
        )

    def _plain(self, conf: Mapping[str, object]) -> dict[str, object]:
        """The configuration with one spelling for each key; ``default.topic.config`` is part of it."""
        found: dict[str, object] = {}
        of_topics = cast("Mapping[str, object] | None", conf.get("default.topic.config"))
        for key, value in {**(of_topics or {}), **conf}.items():
            if key == "default.topic.config":
                continue
            if not isinstance(cast("object", key), str):
                raise TypeError(f"Invalid configuration key {key!r}: must be str.")
            plain = key.removeprefix("topic.") if key.removeprefix("topic.") in ALIASES else key
            found[ALIASES.get(plain, plain)] = value
        return found

    def _read(self, key: str, value: object) -> None:
        if key in _CALLBACKS or key in ("on_delivery", "logger"):
            self._read_hook(key, value)
        elif key in DIRECT:
            self._read_option(key, value)
        elif key in IGNORED:
            self._ignored[key] = IGNORED[key]
        elif key in REFUSED:
            raise ConfigError(f"{key} cannot be honoured: {REFUSED[key]}")
        elif key in REFUSED_UNLESS:
            allowed, reason = REFUSED_UNLESS[key]
            if str(value).strip().lower() not in allowed:
                raise ConfigError(f"{key}={value!r} cannot be honoured: {reason}")
        elif key in _OWN:
            return
        elif key.startswith(("sasl.oauthbearer.", "https.")):
            raise ConfigError(f"{key} cannot be honoured: pass oauth_cb, which returns tokens.")
        elif is_of_another(key) or key.startswith(("group.", "fetch.", "enable.auto.")):
            self._ignored[key] = "it is for consumers"
        else:
            raise ConfigError(f'No such configuration property: "{key}"')

    def _read_hook(self, key: str, value: object) -> None:
        if key == "logger":
            self._ignored[key] = "messages go to the logger 'aioproducer'"
            return
        if value is None:
            return
        if not callable(value):
            if key == "on_delivery":
                raise ConfigError("on_delivery requires a callable object")
            raise TypeError(f"expected {key} property as a callable function")
        if key == "stats_cb":
            self._ignored[key] = "there are no statistics events; the producer's metrics() returns numbers at any time"
        elif key == "throttle_cb":
            self._ignored[key] = (
                "there are no throttle events; produce-throttle-time-avg is in the producer's metrics()"
            )
        elif key == "oauth_cb":
            config = str(self._given.get("sasl.oauthbearer.config", ""))
            self._options["sasl_oauth_token_provider"] = _tokens(cast("Callable[[str], Any]", value), config)
        else:
            self._hooks[key] = value

    def _read_option(self, key: str, value: object) -> None:
        name = librdkafka_option(key) or DIRECT[key] or BY_JAVA_KEY[key]
        option = OPTIONS[name]
        if value is None or (key == "transactional.id" and value == ""):
            if option.default is None or isinstance(option.default, str):
                return  # as if it were not given
            raise ConfigError(f'Configuration property "{key}" cannot be set to an empty value')
        if key == "partitioner" and value == "random":
            self._options.update(partitioner=None, partitioner_ignore_keys=True)
            self._differences[key] = "records stay in a random partition for a batch, instead of one for each record"
            return
        self._options[name] = read_option(option, self._converted(key, value), key)

    def _converted(self, key: str, value: object) -> object:
        """The value with the unit and spelling of our option."""
        if isinstance(value, str):
            value = value.strip()
        if key == "security.protocol":
            return str(value).upper()
        if key in ("enable.idempotence", "allow.auto.create.topics"):
            return str(value).lower() if not isinstance(value, bool) else value
        if key == "linger.ms":
            return self._rounded(key, value)
        if key == "acks":
            _check_acks(value)
        text = str(value)
        if (key, text) in _OTHER_VALUES:
            return _OTHER_VALUES[key, text]
        return value

    def _rounded(self, key: str, value: object) -> int:
        try:
            number = float(cast("float", value))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"Invalid value {value!r} for configuration property {key!r}: must be a number"
            ) from error
        if not 0 <= number <= 900_000:
            raise ConfigError(f'Configuration property "{key}" value {value} is outside allowed range 0..900000')
        if number:
            self._differences[key] = (
                "it is in whole milliseconds, rounded up, and applies only while an earlier batch of the partition is in "
                "flight: a lone record is sent at once, so a purge can come too late"
            )
        return math.ceil(number)

    def _whole(self, key: str, default: int, low: int) -> int:
        value = self._given.get(key, default)
        try:
            number = int(cast("int", value))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"Invalid value {value!r} for configuration property {key!r}: must be an integer"
            ) from error
        if not low <= number <= _INT_MAX:
            raise ConfigError(
                f'Configuration property "{key}" value {number} is outside allowed range {low}..{_INT_MAX}'
            )
        return number

    def _memory(self, max_bytes: int) -> int:
        """Twice the limit, because compression and batches need room: the queue's limit must be reached first."""
        record = cast("int", self._options["max_request_size"])
        return 2 * max(max_bytes, record, cast("int", self._options["batch_size"]))

    def _adjust_level(self) -> None:
        """Set the nearest level that the codec has: librdkafka accepts -1 to 12 for every codec."""
        level = cast("int | None", self._options.get("compression_level"))
        if level is None:
            return
        codecs = named_codecs(self._options.get("compression_type", "none"))
        if not codecs - {"snappy"}:
            del self._options["compression_level"]
            self._ignored["compression.level"] = "the compression.type has no levels"
        elif "gzip" in codecs and _GZIP_MOST < level <= _LEVEL_MOST:
            self._options["compression_level"] = _GZIP_MOST  # without a report: librdkafka does the same
        elif level == 0 and "gzip" in codecs:
            self._options["compression_level"] = 1
            self._differences["compression.level"] = "0 is 1 with gzip: Kafka's gzip has no level that only stores"
        elif level == 0 and codecs == frozenset({"lz4"}):
            self._options["compression_level"] = None  # the fast compressor, as in librdkafka

    def _adjust_times(self) -> None:
        """`delivery_timeout_ms` includes the linger and a request here."""
        delivery = cast("int", self._options["delivery_timeout_ms"]) or _INT_MAX
        linger = cast("int", self._options["linger_ms"])
        if delivery <= linger:
            raise ConfigError("`message.timeout.ms` must be greater than `linger.ms`")
        request = cast("int", self._options["request_timeout_ms"])
        if request > delivery - linger:
            self._differences["request.timeout.ms"] = "it is shortened, so that it fits into message.timeout.ms"
        first, last = cast("int", self._options["retry_backoff_ms"]), cast("int", self._options["retry_backoff_max_ms"])
        self._options |= {
            "delivery_timeout_ms": delivery,
            "request_timeout_ms": min(request, delivery - linger),
            "close_timeout_ms": min(delivery, _AT_EXIT_MS),
            "retry_backoff_max_ms": max(first, last),
        }

    def _adjust_idempotence(self) -> None:
        if self._options.get("transactional_id") is not None:
            self._options["enable_idempotence"] = True
        else:
            self._options.pop("transaction_timeout_ms", None)
        if not self._options["enable_idempotence"]:
            return
        if self._options["acks"] not in (-1, "all"):
            raise ConfigError("`acks` must be set to `all` when `enable.idempotence` is true")
        in_flight = cast("int", self._options.get("max_in_flight_requests_per_connection", 5))
        if in_flight > 5:
            raise ConfigError("`max.in.flight` must be set to at most 5 when `enable.idempotence` is true")

    def _adjust_security(self) -> None:
        options = self._options
        mechanism = options.get("sasl_mechanism")
        if options["security_protocol"] not in ("SASL_PLAINTEXT", "SASL_SSL"):
            for name in [name for name in options if name.startswith("sasl_")]:
                del options[name]  # librdkafka does not use them either
                self._ignored[name.replace("_", ".")] = "security.protocol has no SASL"
            return
        if mechanism is None:
            options["sasl_mechanism"] = mechanism = "GSSAPI"
        if mechanism == "GSSAPI":
            options.setdefault("sasl_kerberos_service_name", "kafka")
        if options["security_protocol"] == "SASL_PLAINTEXT" and mechanism in ("PLAIN", "OAUTHBEARER"):
            options["sasl_allow_plaintext_secrets"] = True
        if mechanism in _PASSWORD_MECHANISMS:
            username, password = (options.pop(name, None) for name in ("sasl_username", "sasl_password"))
            if username is None or password is None:
                raise ConfigError("sasl.username and sasl.password must be set")
            reveal = getattr(password, "reveal", None)
            text = cast("str", reveal() if callable(reveal) else password)
            self._hooks["credentials"] = options["sasl_credentials_provider"] = Credentials(str(username), text)


#: Values that librdkafka spells in another way.
_OTHER_VALUES: Final[Mapping[tuple[str, str], object]] = MappingProxyType(
    {
        ("compression.level", "-1"): None,
        ("connections.max.idle.ms", "0"): -1,
        ("socket.send.buffer.bytes", "0"): -1,
        ("socket.receive.buffer.bytes", "0"): -1,
        ("topic.metadata.refresh.interval.ms", "-1"): 2**31 - 1,
    }
)

#: Keys that are read elsewhere.
_OWN: Final = frozenset(
    {
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "delivery.report.only.error",
        "sasl.oauthbearer.config",
    }
)


def _check_acks(value: object) -> None:
    """Raise `ConfigError` for a number of replicas: librdkafka accepts 2 to 1000, and the brokers refuse each request."""
    if isinstance(value, bool):
        raise ConfigError('Invalid value for configuration property "acks"')
    if str(value).isascii() and str(value).isdigit() and int(str(value)) > 1:
        raise ConfigError(
            f"acks={value!r} cannot be honoured: brokers since Kafka 0.9 refuse numbers of replicas with "
            "INVALID_REQUIRED_ACKS. Use 'all', and set min.insync.replicas of the topic."
        )


def _tokens(callback: Callable[[str], Any], config: str) -> Callable[[], object]:
    """An ``oauth_cb``, which is called in a worker thread: it may request its token from a server."""

    async def token() -> OAuthToken:
        found = await asyncio.to_thread(callback, config)
        extensions = cast("Mapping[str, str]", (len(found) > 3 and found[3]) or {})
        return OAuthToken(found[0], expires_at=found[1], extensions=extensions)

    return token
