"""Libraries that only some functions need, asked for on the driver, before a job starts."""

from __future__ import annotations

from importlib.util import find_spec

from aioproducer.errors import ConfigError

__all__ = ["need", "need_pandas"]


def need(library: str, purpose: str, extra: str) -> None:
    """Raise `ConfigError` where the library is not installed; ``purpose`` is the beginning of the sentence that says so."""
    if find_spec(library) is None:
        raise ConfigError(
            f"{purpose} needs {library}, which is not installed here: pip install 'aioproducer[{extra}]' for the Python of "
            "the driver and of every executor."
        )


def need_pandas(purpose: str) -> None:
    """Raise `ConfigError` where pandas is missing, without which PySpark refuses mapInArrow, although it uses none there."""
    need("pandas", purpose, "spark")
