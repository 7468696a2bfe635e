"""PLAIN: name and password as they are (RFC 4616)."""

from __future__ import annotations

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.mechanism import Done, MechanismError, Say, Step, Token

__all__ = ["Plain"]


class Plain:
    """Says who it is and what the password is, once."""

    name = "PLAIN"
    blocks = False

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def start(self) -> Step:
        """The one message; raises `MechanismError` for what it cannot hold."""
        if "\0" in self._username or "\0" in self._password.reveal():
            raise MechanismError("cannot be told a user name or password with a NUL character in it")
        try:
            return Say(Token(f"\0{self._username}\0{self._password.reveal()}".encode()))
        except UnicodeEncodeError:
            pass  # the error holds what it could not encode
        raise MechanismError("cannot be told a user name or password that is no text in UTF-8")

    def challenged(self, token: bytes) -> Step:
        """The broker has nothing to add."""
        if token:
            raise MechanismError("answered with a challenge, which PLAIN has not")
        return Done()

    def derived(self, salted: bytes) -> Step:
        """Never asked for."""
        raise AssertionError(salted)

    def explain(self, message: str) -> str:
        """What the broker says, unless it says the password."""
        password = self._password.reveal()
        return message.replace(password, "***") if password else message
