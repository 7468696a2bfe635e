"""Collects everything that is wrong with a configuration in one error."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from aioproducer.errors import ConfigError

__all__ = ["Problems"]


class Problems:
    """Collects errors while options are read, so that a user with three mistakes can correct all of them at once."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []
        #: The options whose values could not be read, so that no other check applies to them.
        self.options: set[str] = set()

    @contextmanager
    def collecting(self, *options: str) -> Generator[None]:
        """A block that may raise a `ConfigError`, which leaves these ``options`` without a value."""
        try:
            yield
        except ConfigError as error:
            self._errors.append(error)
            self.options.update(options)

    def add(self, error: ConfigError, *options: str) -> None:
        """Adds an error, which leaves these ``options`` without a value."""
        self._errors.append(error)
        self.options.update(options)

    def raise_if_any(self) -> None:
        """Raise the error if there is one, or an error that lists them all."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            listed = "".join(f"\n- {error}" for error in self._errors)
            raise ConfigError(f"The configuration has {len(self._errors)} mistakes:{listed}")
