"""librdkafka's mock cluster in its own process: prints its address, then makes a topic for each line it reads.

A line ``create NAME PARTITIONS`` or ``delete NAME`` is answered by ``ok``, or by what went wrong. It ends with its
standard input. The library is the one inside of confluent-kafka's wheel, called through ctypes, because from Python
(``test.mock.num.brokers``) a mock cluster makes topics with four partitions only.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.unavailable import Unavailable, optional

__all__ = ["main"]

_PRODUCER = 0


def _library() -> ctypes.CDLL:
    optional("confluent_kafka")  # loads what librdkafka itself needs
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise Unavailable("confluent_kafka has no place on disk.")
    found = sorted((Path(spec.origin).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    if not found:
        raise Unavailable(
            "confluent-kafka was not installed from one of its Linux wheels, which bring librdkafka along."
        )
    library = ctypes.CDLL(str(found[0]))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_new": (pointer, [ctypes.c_int, pointer, text, ctypes.c_size_t]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, ctypes.c_int]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.c_int]),
        "rd_kafka_mock_topic_delete": (ctypes.c_int, [pointer, text]),
        "rd_kafka_err2str": (text, [ctypes.c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _answer(library: ctypes.CDLL, cluster: int, line: str) -> str:
    verb, name, *rest = line.split()
    if verb == "create":
        error = library.rd_kafka_mock_topic_create(cluster, name.encode(), int(rest[0]), 1)
    else:
        error = library.rd_kafka_mock_topic_delete(cluster, name.encode())
    return "ok" if error == 0 else f"{line.strip()}: {library.rd_kafka_err2str(error).decode()}"


def main() -> None:
    """Serve until the standard input ends."""
    library = _library()
    message = ctypes.create_string_buffer(512)
    client = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), message, len(message))
    if client is None:
        raise Unavailable(f"librdkafka could not be started: {message.value.decode()}.")
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        print(_answer(library, cluster, line), flush=True)
    os._exit(0)  # nothing in here is worth an orderly end of its threads


if __name__ == "__main__":
    main()
