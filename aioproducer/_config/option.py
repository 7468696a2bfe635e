"""One option as programs see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from aioproducer._config.kinds import Kind, SecretText

__all__ = ["Option", "read_option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option as programs see it; ``java_key`` is None if Java has no such key."""

    name: str
    type: str
    default: object
    java_key: str | None
    doc: str
    kind: Kind = field(repr=False, compare=False)

    @property
    def secret(self) -> bool:
        """Whether the value must not be shown."""
        return isinstance(self.kind, SecretText)

    @property
    def allowed(self) -> str:
        """A description of the valid values."""
        return f"{self.kind.allowed()}, or None" if self.kind.optional else self.kind.allowed()

    @property
    def dotted(self) -> str:
        """The option's name in properties."""
        return self.java_key or self.name.replace("_", ".")


def read_option(option: Option, value: object, source: str) -> object:
    """``value``, parsed if it is text, and checked; errors use the name that the user gave."""
    label = option.name if source == option.name else f"{source} ({option.name})"
    parsed = option.kind.parse(label, value) if isinstance(value, str) else value
    return option.kind.check(label, parsed)
