"""What every mechanism is to the conversation: somebody who says what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from aioproducer._config.secret import Secret

__all__ = ["Derive", "Done", "Mechanism", "MechanismError", "Say", "Step", "Token"]


class Token(bytes):
    """Bytes that authenticate somebody: bytes for whoever sends them, and nothing for whoever prints them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Token(***)"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Say:
    """Send this to the broker and wait for its answer."""

    token: Token


@dataclass(frozen=True, slots=True)
class Derive:
    """Compute the salted password (PBKDF2), which takes long, and give it to ``Mechanism.derived``."""

    algorithm: str
    password: Secret
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class Done:
    """The broker has proved what it had to prove, and has said that it knows us."""


Step: TypeAlias = Say | Derive | Done


class MechanismError(Exception):  # becomes an AuthenticationError that names the broker
    """The broker's answer is none that this mechanism allows, or says no; the text is half a sentence about the broker."""


class Mechanism(Protocol):
    """One login by one mechanism; used once."""

    @property
    def name(self) -> str:
        """As the broker knows it."""
        ...

    @property
    def blocks(self) -> bool:
        """Whether it may take long to say what comes next, as it asks somebody else; then it is asked in a thread."""
        ...

    def start(self) -> Step:
        """What to say first."""
        ...

    def challenged(self, token: bytes) -> Step:
        """What to do about the broker's answer; raises `MechanismError` where it must not be accepted."""
        ...

    def derived(self, salted: bytes) -> Step:
        """What to do now that the salted password is there."""
        ...

    def explain(self, message: str) -> str:
        """What to tell of a refusal, from what the broker told of it."""
        ...
