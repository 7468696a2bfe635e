"""PLAIN: user name and password in clear text (RFC 4616)."""

from __future__ import annotations

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.mechanism import Done, MechanismError, SendToken, Step, Token

__all__ = ["Plain"]


class Plain:
    """Sends the user name and the password, once."""

    name = "PLAIN"
    blocks = False

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def start(self) -> Step:
        """Return the only message; raises `MechanismError` for a name or password that it cannot hold."""
        if "\0" in self._username or "\0" in self._password.reveal():
            raise MechanismError("cannot be sent a user name or password with a NUL character")
        try:
            return SendToken(Token(f"\0{self._username}\0{self._password.reveal()}".encode()))
        except UnicodeEncodeError:
            pass  # the error holds what it could not encode
        raise MechanismError("cannot be sent a user name or password that UTF-8 cannot encode")

    def challenged(self, token: bytes) -> Step:
        """Raise unless the broker's answer is empty."""
        if token:
            raise MechanismError("answered with a challenge, which PLAIN does not have")
        return Done()

    def derived(self, salted: bytes) -> Step:
        """Never called: PLAIN derives no key."""
        raise AssertionError(salted)

    def explain(self, message: str) -> str:
        """Return the broker's message, without the password."""
        password = self._password.reveal()
        return message.replace(password, "***") if password else message
