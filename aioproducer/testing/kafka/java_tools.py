"""Checks what a producer wrote with Kafka's own Java code: its consumer, its log checker and its partitioner."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import tempfile
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from aioproducer.testing.kafka.jars import KafkaJars, KafkaUnavailable, cache_directory, locked
from aioproducer.testing.kafka.jvm import SOURCES, JavaProgram
from aioproducer.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from aioproducer.testing.kafka.jvm import Recording

__all__ = [
    "DumpedBatch",
    "JavaToolError",
    "JavaTools",
    "KeyHash",
    "PartitionDigest",
    "ReadRecord",
    "RecordDigest",
    "compile_java",
]

_TOOL_TIMEOUT: Final = 300.0
_QUICK_START: Final = ("-Xms32m", "-Xmx512m", "-XX:TieredStopAtLevel=1")

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_RECORD_START = struct.Struct(">iqqb")  # partition, offset, timestamp, timestamp type
_KEY_HASH = struct.Struct(">ii")


class JavaToolError(RuntimeError):
    """A Java tool failed, for example because of a wrong CRC; the message contains its output."""


class ReadRecord(NamedTuple):
    """One record as Kafka's consumer returned it."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class PartitionDigest:
    """A summary of a partition's records."""

    partition: int
    count: int
    #: Bytes of keys, values and headers.
    size: int
    first_offset: int
    last_offset: int
    offsets_ascend: bool
    #: The SHA-256 of all records in order, to compare with ``RecordDigest.hexdigest()``.
    sha256: str


class KeyHash(NamedTuple):
    """The Java producer's result for a key."""

    murmur2: int
    partition: int


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One record batch in a file of the broker, as printed by DumpLogSegments."""

    file: str
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    #: In lower case: none, gzip, snappy, lz4, zstd.
    codec: str
    size: int
    #: Whether the CRC matches.
    is_valid: bool


class RecordDigest:
    """The SHA-256 of records in order, for comparison with a PartitionDigest."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.count = 0

    def add(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> RecordDigest:
        """Add the next record of the partition."""
        pieces = [_field(key), _field(value), _INT.pack(len(headers))]
        for name, header in headers:
            pieces += [_field(name.encode()), _field(header)]
        self._sha256.update(b"".join(pieces))
        self.count += 1
        return self

    def hexdigest(self) -> str:
        """Equal to a PartitionDigest's ``sha256`` exactly when the records and their order are equal."""
        return self._sha256.hexdigest()


class JavaTools:
    """Programs on Kafka's jars. Each call runs a JVM for about a second, and blocks.

    Raises KafkaUnavailable on the first call if Java has no compiler (a JRE instead of a JDK), and JavaToolError if a
    program fails.
    """

    def __init__(self, jars: KafkaJars) -> None:
        self._jars = jars

    def read_back(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        start: Mapping[int, int] | None = None,
        max_records: int | None = None,
        properties: Mapping[str, str] | None = None,
        patience: float = 30.0,
    ) -> Generator[ReadRecord, None, None]:
        """The records of all partitions up to their current end, read by Java's consumer with ``check.crcs=true``.

        Each partition's records come in their order. ``start`` has offsets of partitions to begin at, instead of the
        beginning; ``properties`` are consumer properties such as ``isolation.level``. JavaToolError is raised when no
        record comes for ``patience`` seconds before the end.
        """
        with _Reading(
            self._reader(), "records", bootstrap_servers, topic, start, max_records, properties, patience
        ) as (reading):
            count = 0
            while reading.take(1) == b"R":
                count += 1
                yield _read_record(reading)
            if reading.take(8) != _LONG.pack(count):
                raise JavaToolError(f"ReadBack reported another number of records than the {count} that were received.")

    def digest(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        start: Mapping[int, int] | None = None,
        properties: Mapping[str, str] | None = None,
        patience: float = 60.0,
    ) -> dict[int, PartitionDigest]:
        """A digest of each non-empty partition, computed in Java: for topics of millions of records."""
        with _Reading(self._reader(), "digest", bootstrap_servers, topic, start, None, properties, patience) as reading:
            digests = [PartitionDigest(**json.loads(line)) for line in reading.output]
        return {digest.partition: digest for digest in digests}

    def dump_log_segments(self, directory: Path) -> list[DumpedBatch]:
        """Every record batch in the broker's files of one partition, or of all partitions below that directory.

        Java decompresses each batch and checks each of its records. Raises JavaToolError if the files are not valid, or
        the tool prints an unknown line.
        """
        files = sorted(str(file) for file in directory.rglob("*.log"))
        if not files:
            raise ValueError(f"{directory} has no .log files of a Kafka partition in it.")
        main = "kafka.tools.DumpLogSegments" if self._is_older_than_4 else "org.apache.kafka.tools.DumpLogSegments"
        program = JavaProgram(self._jars, main, "dump", options=_QUICK_START)
        output = _run(program, b"", "--deep-iteration", "--max-message-size", "104857600", "--files", ",".join(files))
        return list(_dumped_batches(output.decode(errors="replace")))

    def hash_keys(self, keys: Sequence[bytes], partitions: int) -> list[KeyHash]:
        """The murmur2 (signed, as in Java) and the partition that the Java producer computes for each key."""
        data = b"".join([_INT.pack(len(keys)), *map(_field, keys)])
        output = _run(self._own("Partitions"), data, str(partitions))
        return [KeyHash(*pair) for pair in _KEY_HASH.iter_unpack(output)]

    def subscribe_to_client_metrics(
        self, bootstrap_servers: str, name: str, metrics: Sequence[str], interval_ms: int
    ) -> None:
        """Create or change a subscription to the metrics of clients (KIP-714, from Kafka 3.7 on).

        ``metrics`` are beginnings of names; ``*`` is all of them. They are pushed each ``interval_ms``, 100 at least.
        """
        program = JavaProgram(
            self._jars, "org.apache.kafka.tools.ClientMetricsCommand", "metrics", options=_QUICK_START
        )
        what = ["--metrics", ",".join(metrics), "--interval", str(interval_ms)]
        _run(program, b"", "--bootstrap-server", bootstrap_servers, "--alter", "--name", name, *what)

    def java_partitions(self, keys: Sequence[bytes], partitions: int) -> list[int]:
        """The partition that the Java producer sends each key to."""
        return [found.partition for found in self.hash_keys(keys, partitions)]

    @property
    def _is_older_than_4(self) -> bool:
        return int(self._jars.version.split(".")[0]) < 4

    def _reader(self) -> JavaProgram:
        return self._own("ReadBack")

    def _own(self, main: str) -> JavaProgram:
        return JavaProgram(self._jars, main, main.lower(), classes=_compiled(self._jars), options=_QUICK_START)


class _Reading:
    """A run of ReadBack, whose output is read while it runs. Leaving the block early kills the JVM."""

    def __init__(
        self,
        program: JavaProgram,
        mode: str,
        bootstrap_servers: str,
        topic: str,
        start: Mapping[int, int] | None,
        max_records: int | None,
        properties: Mapping[str, str] | None,
        patience: float,
    ) -> None:
        starts = ",".join(f"{partition}={offset}" for partition, offset in (start or {}).items())
        consumer = {"bootstrap.servers": bootstrap_servers, **(properties or {})}
        most = -1 if max_records is None else max_records
        self._command, self._recording = program.command(
            mode, topic, str(most), str(int(patience * 1000)), starts, *(f"{k}={v}" for k, v in consumer.items())
        )

    def __enter__(self) -> _Reading:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=1 << 16
        )
        assert self._process.stdout is not None
        self.output: IO[bytes] = self._process.stdout
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                if stream is not None:
                    stream.close()
            _finish_recording(self._recording, written=kind is None)

    def take(self, size: int) -> bytes:
        data = self.output.read(size)
        if len(data) != size:
            self._finish()
            raise JavaToolError(f"ReadBack's output ends in the middle of a record.\n{self._complaint()}")
        return data

    def take_field(self) -> bytes | None:
        (size,) = _INT.unpack(self.take(4))
        return None if size < 0 else self.take(size)

    def _finish(self) -> None:
        exit_code = self._process.wait(_TOOL_TIMEOUT)
        if exit_code != 0:
            raise JavaToolError(f"ReadBack ended with exit code {exit_code}.\n{self._complaint()}")

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]


def _read_record(reading: _Reading) -> ReadRecord:
    partition, offset, timestamp, timestamp_type = _RECORD_START.unpack(reading.take(_RECORD_START.size))
    key, value = reading.take_field(), reading.take_field()
    (header_count,) = _INT.unpack(reading.take(4))
    headers = tuple(((reading.take_field() or b"").decode(), reading.take_field()) for _ in range(header_count))
    return ReadRecord(partition, offset, timestamp, TimestampType(timestamp_type), key, value, headers)


def _field(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def _run(program: JavaProgram, data: bytes, *arguments: str) -> bytes:
    command, recording = program.command(*arguments)
    written = False
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_TOOL_TIMEOUT, check=False)
        written = True
    finally:
        _finish_recording(recording, written=written)
    if done.returncode != 0:
        complaint = (done.stdout[-2000:] + done.stderr[-4000:]).decode(errors="replace")
        raise JavaToolError(f"{program.main} ended with exit code {done.returncode}.\n{complaint}")
    return done.stdout


def _finish_recording(recording: Recording | None, *, written: bool) -> None:
    if recording is not None:
        (recording.keep if written else recording.discard)()


#: Lines that DumpLogSegments prints for valid files; any other line is an error.
_EXPECTED = re.compile(
    r"Dumping |Log starting offset: |(?:baseOffset|\| offset|offset): |Snapshot end offset: |\s*$|Deprecat"
)
_PAIR = re.compile(r"(\w+): (\S+)")


def _dumped_batches(output: str) -> Iterator[DumpedBatch]:
    file = ""
    for line in output.splitlines():
        if not _EXPECTED.match(line):
            raise JavaToolError(f"DumpLogSegments reports an error: {line}\n{output[-4000:]}")
        if line.startswith("Dumping "):
            file = line.removeprefix("Dumping ")
        elif line.startswith("baseOffset: "):
            yield _dumped_batch(file, dict(_PAIR.findall(line)))


def _dumped_batch(file: str, found: Mapping[str, str]) -> DumpedBatch:
    return DumpedBatch(
        file=file,
        base_offset=int(found["baseOffset"]),
        last_offset=int(found["lastOffset"]),
        count=int(found["count"]),
        base_sequence=int(found["baseSequence"]),
        last_sequence=int(found["lastSequence"]),
        producer_id=int(found["producerId"]),
        producer_epoch=int(found["producerEpoch"]),
        is_transactional=found["isTransactional"] == "true",
        is_control=found["isControl"] == "true",
        codec=found["compresscodec"].lower(),
        size=int(found["size"]),
        is_valid=found["isvalid"] == "true",
    )


def _compiled(jars: KafkaJars) -> Path:
    """A jar of our Java programs, compiled once for these sources, jars and Java version."""
    sources = sorted(SOURCES.glob("*.java"))
    what = hashlib.sha256(f"{jars.directory}\n{jars.java.version}\n".encode())
    for source in sources:
        what.update(source.read_bytes())
    jar = cache_directory() / f"tools-{jars.version}-{what.hexdigest()[:16]}.jar"
    if not jar.exists():
        with locked(cache_directory() / "compile.lock"):
            if not jar.exists():
                compile_java(jars, sources, jar)
    return jar


def compile_java(jars: KafkaJars, sources: Sequence[Path], jar: Path) -> None:
    """Compile Java sources against Kafka's jars into a jar. Raises `KafkaUnavailable` if that is not possible."""
    compiler = [jars.java.executable, "-m", "jdk.compiler/com.sun.tools.javac.Main", "--release", "17", "-proc:none"]
    with tempfile.TemporaryDirectory(prefix="tools.", dir=jar.parent) as work:
        arguments = ["-nowarn", "-cp", jars.classpath, "-d", work, *map(str, sources)]
        done = subprocess.run([*compiler, *arguments], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise KafkaUnavailable(
                f"Java {jars.java.version} ({jars.java.executable}) cannot compile the test tools; it must be a JDK, a JRE "
                f"has no compiler: {(done.stdout + done.stderr).strip()[-2000:]}"
            )
        # In a jar, because class archives do not work with directories of classes.
        unfinished = Path(work) / f"{uuid.uuid4().hex}.jar"
        with zipfile.ZipFile(unfinished, "w") as archive:
            for compiled in sorted(Path(work).glob("*.class")):
                archive.write(compiled, compiled.name)
        unfinished.replace(jar)
