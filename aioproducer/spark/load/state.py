"""What an exactly-once load remembers beside its slices: what it makes of files and whereto, to go on with that."""

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
    """The load was not begun; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class LoadState:
    """One load: ``load_id`` is new with each checkpoint, ``schema`` is that of the files when it began, as Spark's JSON."""

    load_id: str
    schema: Mapping[str, Any]
    is_new: bool

    @classmethod
    def open(cls, directory: Path, what: Mapping[str, Any], schema: Callable[[], Mapping[str, Any]]) -> LoadState:
        """That of the directory, or a new one; ``what`` is compared with what the load began with.

        Raises LoadRefused where the directory belongs to another load, or cannot be written, and what ``schema`` raises.
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
        raise LoadRefused(f"The checkpoint directory {directory} cannot be used: {error}.") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if kept["version"] != _VERSION:
            raise ValueError(f"version {kept['version']}")
    except (ValueError, LookupError, TypeError) as error:
        raise LoadRefused(f"{file} is not what this version's loads write; choose another --checkpoint.") from error
    return kept


def _compare(directory: Path, kept: Mapping[str, Any], what: Mapping[str, Any]) -> None:
    differing = sorted(name for name in {*kept, *what} if kept.get(name) != what.get(name))
    if differing:
        told = ", ".join(f"{name} {kept.get(name)!r}, not {what.get(name)!r}" for name in differing)
        raise LoadRefused(
            f"The checkpoint {directory} belongs to a load with {told}. Go on with the same arguments, or begin another "
            "load with another --id or --checkpoint."
        )


def _write(file: Path, content: Mapping[str, Any]) -> None:
    new = file.with_suffix(".new")
    with new.open("w", encoding="utf-8") as out:
        json.dump(content, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
