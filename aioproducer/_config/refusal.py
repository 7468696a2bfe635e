"""The message for an option's invalid value."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import Repr

from aioproducer.errors import ConfigError

__all__ = ["refusal", "shown"]

_short = Repr()
_short.maxstring = _short.maxother = 80


def shown(value: object) -> str:
    """A value, short enough for a message."""
    return _short.repr(value)


def refusal(name: str, value: object, allowed: str, nearest: Sequence[str] = ()) -> ConfigError:
    """The error that says what the value of option ``name`` must be.

    Only plain values are shown: any other value may hold a password.
    """
    is_plain = value is None or isinstance(value, str | int | float)
    given = f"{name}={shown(value)}" if is_plain else f"{name} of type {type(value).__name__}"
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return ConfigError(f"Invalid {given}: must be {allowed}.{hint}")
