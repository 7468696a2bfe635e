"""Remembers which files make which transaction of a load, before it is begun, and which of them are committed.

A slice is written down with its files before the first row is sent, so that a load that was killed has the same files in
the same transaction again: by its number Kafka's marker knows it. One process at a time may have the log.
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
    """Files that become visible together; none are left where the slice was given up, and its number is not used again."""

    number: int
    files: Sequence[FoundFile]
    is_committed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is to be written."""
        return not self.is_committed and bool(self.files)


class LoadLog:
    """All slices of one load, oldest first; a file with a line for each thing that has happened."""

    def __init__(self, file: IO[bytes], slices: list[Slice], written: float) -> None:
        self._file = file
        self._written = written
        self.slices = slices

    @property
    def age(self) -> float:
        """Seconds since the process before this one has noted something."""
        return time.time() - self._written

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Generator[Self, None, None]:
        """That of the checkpoint directory. Raises LoadRefused where another process has it, or it cannot be read."""
        path = directory / _FILE
        try:
            file = path.open("ab+")
        except OSError as error:
            raise LoadRefused(f"{path} cannot be used: {error}.") from error
        with file:
            _lock(file, directory)
            written = os.fstat(file.fileno()).st_mtime
            yield cls(file, _read(file, path), written)

    @staticmethod
    def committed(directory: Path) -> int:
        """How many slices are committed, as far as is known without taking the log from who writes it."""
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
        """Note that the slice is committed."""
        self._add({"committed": slice_.number})
        slice_.is_committed = True

    def give_up(self, slice_: Slice) -> None:
        """Note that nothing of the slice was committed nor will be: its files may change, and come again in another one."""
        self._add({"given_up": slice_.number})
        slice_.files = ()

    def _add(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _lock(file: IO[bytes], directory: Path) -> None:
    """The lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows, where nobody is kept from it
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LoadRefused(
            f"Another load is running with the checkpoint {directory}. Wait for its end, or name another --checkpoint."
        ) from error


def _read(file: IO[bytes], path: Path) -> list[Slice]:
    file.seek(0)
    text = file.read()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        file.truncate(whole)  # what was being written when the load was killed
    slices: list[Slice] = []
    try:
        for line in text[:whole].splitlines():
            told: Any = json.loads(line)
            if "committed" in told:
                slices[told["committed"]].is_committed = True
            elif "given_up" in told:
                slices[told["given_up"]].files = ()
            else:
                slices.append(Slice(told["slice"], [FoundFile(*each) for each in told["files"]]))
    except (ValueError, LookupError, TypeError) as error:
        raise LoadRefused(f"{path} is not what a load has written; choose another --checkpoint.") from error
    return slices
