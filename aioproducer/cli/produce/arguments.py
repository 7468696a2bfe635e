"""The arguments of ``aioproducer produce``: kcat's flags, kafka-console-producer's names, and ours."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from aioproducer.cli.arguments import PAIRS, positive
from aioproducer.cli.configuration import HELP, add_configuration_arguments

__all__ = ["CONSOLE_OPTIONS", "FORMATS", "add_arguments", "flags_of"]

FORMATS: Final = ("lines", "json", "csv", "tsv", "parquet", "arrow", "file", "rejects")

#: kafka-console-producer's flags for options of the producer.
CONSOLE_OPTIONS: Final[Mapping[str, str]] = {
    "--batch-size": "batch_size",
    "--max-partition-memory-bytes": "batch_size",
    "--max-memory-bytes": "buffer_memory",
    "--max-block-ms": "max_block_ms",
    "--message-send-max-retries": "retries",
    "--metadata-expiry-ms": "metadata_max_age_ms",
    "--request-required-acks": "acks",
    "--acks": "acks",
    "--request-timeout-ms": "request_timeout_ms",
    "--retry-backoff-ms": "retry_backoff_ms",
    "--socket-buffer-size": "send_buffer_bytes",
    "--timeout": "linger_ms",
}

#: NAME=PATH, as often as wanted.
_PATHS: Final[Mapping[str, Any]] = {**PAIRS, "metavar": "NAME=PATH"}

_EPILOG: Final = f"""examples:
  echo 'hello' | aioproducer produce orders -b localhost:9092
  aioproducer produce orders -b localhost:9092                    (a prompt: each line is acknowledged)
  aioproducer produce orders events.ndjson -b localhost:9092 --key-field user.id --rejects rejects.ndjson
  aioproducer produce orders rejects.ndjson -b localhost:9092 --format rejects
  aioproducer produce orders rows.parquet -b localhost:9092 --key-field id --transactional
  kcat's flags:     echo 'key:value' | aioproducer produce -P -b localhost:9092 -t orders -K:
  console producer: aioproducer produce --bootstrap-server localhost:9092 --topic orders --property parse.key=true

Without FILE, lines come from standard input. {HELP}
The report goes to standard error.

exit codes: 0 everything is written; 1 something is not, or with a transaction nothing is; 2 it did not start;
3 it is not known whether the transaction was committed; 130, 143 it was interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All arguments."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", metavar="[TOPIC] [FILE ...]", nargs="*", help="with -t TOPIC each word is a FILE")
    parser.add_argument("-t", "--topic", metavar="TOPIC", help="the topic")
    add_configuration_arguments(parser)
    _add_input(parser)
    _add_record(parser)
    _add_sending(parser)
    _add_console(parser)


def _add_input(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    group.add_argument(
        "--format", choices=FORMATS, help="lines; json: an object in each line; file: each file is one record; rejects: "
        "a file that --rejects wrote; default: by the file's name, else lines"
    )  # fmt: skip
    group.add_argument("-l", "--lines", action="store_true", help="lines, as with --format lines")
    group.add_argument("-P", dest="as_kcat", action="store_true", help="as kcat -P: each FILE is one record, unless -l")
    group.add_argument("-D", dest="delimiter", metavar="DELIM", default=r"\n", help=r"the end of a line (default: \n)")
    group.add_argument("-K", dest="key_delimiter", metavar="DELIM", help="text between key and value")
    group.add_argument("-Z", dest="empty_is_null", action="store_true", help="with -K, empty keys and values are null")
    group.add_argument("--null-marker", metavar="TEXT", help="keys and values that equal it are null")
    group.add_argument("--keep-empty", action="store_true", help="send empty lines, which are skipped by default")
    group.add_argument(
        "--skip", metavar="N", type=positive, default=0, help="leave out the first N lines (not rows of tables)"
    )
    group.add_argument("-c", dest="count", metavar="N", type=positive, help="end after N records")
    group.add_argument("--key-field", metavar="PATH", help="field or column that is the key, such as user.id")
    group.add_argument(
        "--value-field", metavar="PATH", action="append", default=[], help="field or column that is the value (default: "
        "the whole object or row); of a table may be repeated: several are a JSON object"
    )  # fmt: skip
    group.add_argument(
        "--header-field",
        dest="header_fields",
        help="field or column that is a header; may be repeated",
        **_PATHS,
    )
    group.add_argument("--partition-field", metavar="PATH", help="field or column that is the partition")
    group.add_argument(
        "--timestamp-field", metavar="PATH", help="field or column that is the timestamp: milliseconds or ISO 8601"
    )


def _add_record(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("records")
    group.add_argument("-k", "--key", metavar="KEY", help="the default key, for records that have none")
    group.add_argument(
        "-H", "--header", dest="headers", metavar="NAME=VALUE", action="append", default=[], help="a default header, for "
        "records that have none; without = it is null; may be repeated"
    )  # fmt: skip
    group.add_argument("-p", "--partition", metavar="N", type=int, help="the default partition")
    group.add_argument("--timestamp-ms", metavar="MS", type=int, help="the timestamp, in milliseconds since 1970")


def _add_sending(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sending")
    group.add_argument(
        "-z",
        "--compression-type",
        "--compression-codec",
        dest="compression_type",
        metavar="CODEC",
        nargs="?",
        const="gzip",
        help="none, gzip, snappy, lz4 or zstd; zstd,lz4: the first one that the broker supports",
    )
    group.add_argument("--transactional", action="store_true", help="all or nothing, in one transaction")
    group.add_argument(
        "--transactional-id", metavar="ID", help="the same, with this id (default: derived from topic and files)"
    )
    group.add_argument("--sync", action="store_true", help="wait for each record before the next")
    group.add_argument(
        "--rejects",
        metavar="FILE",
        help="go on after records that fail, and write them to this file with the reason (not rows of tables)",
    )
    group.add_argument("-E", dest="goes_on", action="store_true", help="go on after records that fail")
    group.add_argument("-T", "--tee", action="store_true", help="also write the lines to standard output")
    group.add_argument("-q", "--quiet", action="store_true", help="write only errors")
    group.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="write partition and offset of each record when it is acknowledged",
    )
    group.add_argument("--json", action="store_true", help="print the report to standard output, as a JSON object")


def _add_console(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("kafka-console-producer's names")
    group.add_argument(
        "--property", "--reader-property", dest="properties", help="of lines: parse.key=true, key.separator=, "
        "parse.headers=true, headers.delimiter=, headers.separator=, headers.key.separator=, ignore.error=true, "
        "null.marker=",
        **PAIRS,
    )  # fmt: skip
    group.add_argument("--reader-config", metavar="FILE", help="a .properties file of these")
    group.add_argument("--line-reader", metavar="CLASS", help="only Kafka's own LineMessageReader")
    for flag, option in CONSOLE_OPTIONS.items():
        group.add_argument(
            flag, dest=f"console_{flag.strip('-')}", metavar="VALUE", help=f"the same as -X {option}=VALUE"
        )


def flags_of(options: argparse.Namespace) -> Mapping[str, Any]:
    """The options of the producer that the verb's own flags set."""
    found: dict[str, Any] = {"compression_type": options.compression_type}
    for flag, option in CONSOLE_OPTIONS.items():
        given = getattr(options, f"console_{flag.strip('-')}")
        if given is not None:
            found[option] = given
    return found
