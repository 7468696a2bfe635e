"""The interface between a mechanism and the conversation: a mechanism decides what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from aioproducer._config.secret import Secret

__all__ = ["Derive", "Done", "Mechanism", "MechanismError", "SendToken", "Step", "Token"]


class Token(bytes):
    """Bytes that authenticate a client; they can be sent, and their repr shows nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Token(***)"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class SendToken:
    """Send this to the broker and wait for its answer."""

    token: Token


@dataclass(frozen=True, slots=True)
class Derive:
    """Compute the salted password (PBKDF2), which takes long, and pass it to ``Mechanism.derived``."""

    algorithm: str
    password: Secret
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class Done:
    """The broker has proved itself if it had to, and has accepted the login."""


Step: TypeAlias = SendToken | Derive | Done


class MechanismError(Exception):  # becomes an AuthenticationError that names the broker
    """The broker's answer is invalid or a refusal; the text completes a sentence about the broker."""


class Mechanism(Protocol):
    """One login by one mechanism; used once."""

    @property
    def name(self) -> str:
        """The broker's name for the mechanism."""
        ...

    @property
    def blocks(self) -> bool:
        """Whether its methods may block, because they ask another service; they are then called in a thread."""
        ...

    def start(self) -> Step:
        """Return the first message."""
        ...

    def challenged(self, token: bytes) -> Step:
        """Return what to do after the broker's answer; raises `MechanismError` if it must not be accepted."""
        ...

    def derived(self, salted: bytes) -> Step:
        """Return what to do with the salted password."""
        ...

    def explain(self, message: str) -> str:
        """Return the explanation of a refusal, from the broker's message."""
        ...
