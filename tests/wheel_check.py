"""A check of an installed wheel: its native modules are in use, and records reach a broker; needs no pytest.

``python -P tests/wheel_check.py`` runs it, where -P keeps this checkout out of the import path. cibuildwheel runs it with
each wheel, in an environment that has only the wheel and its dependencies. An uncaught exception is a failed check.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import aioproducer
from aioproducer import Producer, SyncProducer
from aioproducer._twin import NATIVE_MODULES, implementation
from aioproducer.config import CompressionType
from aioproducer.testing import FakeBroker

#: The classes and functions that have a Python twin, by the module that chooses, with the native module.
TWINS = {
    "aioproducer._metadata": ("RecordMetadata", "aioproducer._metadata._native"),
    "aioproducer.hot": ("Delivery", "aioproducer.hot._native"),
    "aioproducer.protocol.codec": ("compile_encoder", "aioproducer.protocol._native"),
    "aioproducer.protocol.lone_batch": ("LoneBatch", "aioproducer.protocol._lone_batch_native"),
    "aioproducer.record.batch": ("EncodedBatch", "aioproducer.record._encoded_batch_native"),
    "aioproducer.record.columns": ("ColumnEncoder", "aioproducer.record._columns"),
    "aioproducer.record.encoder": ("RecordBatchBuilder", "aioproducer.record._native"),
    "aioproducer.spark.exactly_once.row_hashes": ("sum_of_hashes", "aioproducer.spark.exactly_once._row_hashes"),
}
#: The native module that is no twin: the compressor uses it if it can be imported.
WITHOUT_TWIN = "aioproducer.record._compression_threads"

#: The codecs that need no extra.
CODECS: tuple[CompressionType, ...] = ("none", "gzip", "lz4", "zstd")
RECORDS = 1_000


def require(fact: bool, otherwise: str) -> None:
    """Raise AssertionError with this text, also with -O, unless the fact holds."""
    if not fact:
        raise AssertionError(otherwise)


def check_origin() -> None:
    """Require that the package under test is the installed one."""
    checkout, package = Path(__file__).resolve().parent.parent, Path(aioproducer.__file__).resolve().parent
    require(package.parent != checkout, f"{package} is imported from the checkout: run this with python -P.")


def check_native_modules() -> None:
    """Require that each native module is loaded from a compiled file, and that each choice between twins takes it."""
    require(implementation() == "native", implementation())
    for name in NATIVE_MODULES:
        file = import_module(name).__file__ or ""
        require(file.endswith(tuple(EXTENSION_SUFFIXES)), f"{name} was loaded from {file!r}, which is not compiled.")
    for place, (name, native) in TWINS.items():
        chosen = getattr(import_module(place), name)
        require(chosen is getattr(import_module(native), name), f"{place}.{name} is not that of {native}.")
    missing = set(NATIVE_MODULES) - {native for _, native in TWINS.values()} - {WITHOUT_TWIN}
    require(not missing, f"No check of {sorted(missing)}: add it to TWINS.")


async def send_all(broker: FakeBroker, codec: CompressionType) -> None:
    """Send records to the topic that is named like the codec, many at once and one by one."""
    async with Producer(broker.bootstrap_servers, compression_type=codec) as producer:
        for number in range(RECORDS - 1):
            await producer.enqueue(codec, b"value %d" % number, key=b"%d" % number, headers={"n": b"%d" % number})
        await producer.flush()
        metadata = await producer.send(codec, b"value %d" % (RECORDS - 1), key=b"%d" % (RECORDS - 1))
        require(metadata.topic == codec and metadata.offset >= 0, repr(metadata))


def check_records() -> None:
    """Require that a broker gets each record of an asyncio producer with each codec, and those of a thread."""
    with FakeBroker(topics={**dict.fromkeys(CODECS, 3), "threads": 1}) as broker:
        for codec in CODECS:
            asyncio.run(send_all(broker, codec))
            found = {record.key: record.value for record in broker.records(codec)}
            wanted = {b"%d" % number: b"value %d" % number for number in range(RECORDS)}
            require(found == wanted, f"{len(found)} records with {codec}, or other ones than were sent")
        with SyncProducer(broker.bootstrap_servers) as producer:
            producer.send("threads", b"value")
        broker.assert_sent("threads", value=b"value")


def main() -> None:
    """Run all checks, and report on one line."""
    check_origin()
    check_native_modules()
    check_records()
    version, python = aioproducer.__version__, f"{platform.python_implementation()} {platform.python_version()}"
    count = len(NATIVE_MODULES)
    sys.stdout.write(f"aioproducer {version}, {python}, {platform.machine()}: {count} native modules, records ok\n")


if __name__ == "__main__":
    main()
