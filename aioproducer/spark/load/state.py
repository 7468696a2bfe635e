"""The state of an exactly-once load besides its slices: its arguments and schema, to resume with the same ones."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["LoadRefused", "LoadState"]

_FILE: Final = "load.json"
_VERSION: Final = 2


class LoadRefused(Exception):
    """The load was not started; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class LoadState:
    """One load: ``load_id`` is new with each checkpoint, ``schema`` is that of the files at the start, as Spark's JSON."""

    load_id: str
    schema: Mapping[str, Any]
    is_new: bool

    @classmethod
    def open(cls, directory: Path, what: Mapping[str, Any], schema: Callable[[], Mapping[str, Any]]) -> LoadState:
        """The state of the directory, or a new one; ``what`` is compared with the load's initial arguments.

        Raises LoadRefused if the directory belongs to another load or cannot be written, and what ``schema`` raises.
        """
        file = directory / _FILE
        with _refusing(directory):
            kept = _read(file) if file.exists() else None
            directory.mkdir(parents=True, exist_ok=True)
        if kept is not None:
            _compare(directory, kept["what"], json.loads(json.dumps(what)))
            return cls(kept["load"], kept["schema"], False)
        state = cls(uuid.uuid4().hex, schema(), True)
        with _refusing(directory):
            _write(file, {"version": _VERSION, "load": state.load_id, "what": dict(what), "schema": state.schema})
        return state


@contextmanager
def _refusing(directory: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise LoadRefused(f"Could not use the checkpoint directory {directory}: {error}.") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if kept["version"] != _VERSION:
            raise ValueError(f"version {kept['version']}")
    except (ValueError, LookupError, TypeError) as error:
        raise LoadRefused(f"{file} was not written by a load of this version; choose another --checkpoint.") from error
    return kept


def _compare(directory: Path, kept: Mapping[str, Any], what: Mapping[str, Any]) -> None:
    differing = sorted(name for name in {*kept, *what} if kept.get(name) != what.get(name))
    if differing:
        differences = ", ".join(f"{name} {kept.get(name)!r}, not {what.get(name)!r}" for name in differing)
        raise LoadRefused(
            f"The checkpoint {directory} belongs to a load with {differences}. Use the same arguments, or start another "
            "load with another --id or --checkpoint."
        )


def _write(file: Path, content: Mapping[str, Any]) -> None:
    new = file.with_suffix(".new")
    with new.open("w", encoding="utf-8") as out:
        json.dump(content, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
