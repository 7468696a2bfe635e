"""Checks on the driver, before a job starts, for libraries that only some functions need."""

from __future__ import annotations

from importlib.util import find_spec

from aioproducer.errors import ConfigError

__all__ = ["need", "need_pandas"]


def need(library: str, purpose: str, extra: str) -> None:
    """Raise `ConfigError` if the library is not installed; ``purpose`` begins its message."""
    if find_spec(library) is None:
        raise ConfigError(
            f"{purpose} needs {library}, which is not installed here: pip install 'aioproducer[{extra}]' for the Python of "
            "the driver and of every executor."
        )


def need_pandas(purpose: str) -> None:
    """Raise `ConfigError` if pandas is missing: PySpark refuses mapInArrow without it, although it does not use it there."""
    need("pandas", purpose, "spark")
