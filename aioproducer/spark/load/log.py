"""Records which files belong to which transaction of a load, before it begins, and which of them are committed.

A slice is recorded with its files before the first row is sent, so that a killed load puts the same files into the same
transaction again: Kafka's marker identifies it by its number. Only one process at a time may use the log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

from aioproducer.spark.files.listing import FoundFile
from aioproducer.spark.load.state import LoadRefused

__all__ = ["LoadLog", "Slice"]

_FILE: Final = "slices.jsonl"


@dataclass(slots=True)
class Slice:
    """Files that become visible together; empty if the slice was given up, and its number is not used again."""

    number: int
    files: Sequence[FoundFile]
    is_committed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it must be written."""
        return not self.is_committed and bool(self.files)


class LoadLog:
    """All slices of one load, oldest first, stored as a file with one line per event."""

    def __init__(self, file: IO[bytes], slices: list[Slice], written: float) -> None:
        self._file = file
        self._written = written
        self.slices = slices

    @property
    def age(self) -> float:
        """Seconds since the previous process wrote to the log."""
        return time.time() - self._written

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Generator[Self, None, None]:
        """The log of a checkpoint directory. Raises LoadRefused if another process uses it, or it cannot be read."""
        path = directory / _FILE
        try:
            file = path.open("ab+")
        except OSError as error:
            raise LoadRefused(f"could not use {path}: {error}.") from error
        with file:
            _lock(file, directory)
            written = os.fstat(file.fileno()).st_mtime
            yield cls(file, _read(file, path), written)

    @staticmethod
    def committed(directory: Path) -> int:
        """The number of committed slices, read without locking the log."""
        with suppress(OSError):
            return (directory / _FILE).read_bytes().count(b'{"committed"')
        return 0

    @property
    def files(self) -> dict[str, FoundFile]:
        """All files that have a slice, by their paths."""
        return {file.path: file for slice_ in self.slices for file in slice_.files}

    def plan(self, files: Sequence[FoundFile]) -> Slice:
        """The next slice, with these files."""
        planned = Slice(len(self.slices), files)
        self._add({"slice": planned.number, "files": files})
        self.slices.append(planned)
        return planned

    def commit(self, slice_: Slice) -> None:
        """Record that the slice is committed."""
        self._add({"committed": slice_.number})
        slice_.is_committed = True

    def give_up(self, slice_: Slice) -> None:
        """Record that no part of the slice was or will be committed: its files may change, and go into another slice."""
        self._add({"given_up": slice_.number})
        slice_.files = ()

    def _add(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _lock(file: IO[bytes], directory: Path) -> None:
    """The lock ends with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LoadRefused(
            f"Another load is using the checkpoint {directory}. Wait until it ends, or choose another --checkpoint."
        ) from error


def _read(file: IO[bytes], path: Path) -> list[Slice]:
    file.seek(0)
    text = file.read()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        file.truncate(whole)  # drop a line that was cut off when the load was killed
    slices: list[Slice] = []
    try:
        for line in text[:whole].splitlines():
            entry: Any = json.loads(line)
            if "committed" in entry:
                slices[entry["committed"]].is_committed = True
            elif "given_up" in entry:
                slices[entry["given_up"]].files = ()
            else:
                slices.append(Slice(entry["slice"], [FoundFile(*each) for each in entry["files"]]))
    except (ValueError, LookupError, TypeError) as error:
        raise LoadRefused(f"{path} was not written by a load; choose another --checkpoint.") from error
    return slices
