"""GSSAPI: a Kerberos ticket from the ticket cache, which kinit or k5start keeps fresh (RFC 4752)."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.core.sasl.mechanism import Done, MechanismError, SendToken, Step, Token
from aioproducer.errors import ConfigError

__all__ = ["Gssapi"]

#: Neither integrity nor privacy: that is TLS's task, and Kafka offers nothing else.
_NO_LAYER: Final = 1


class Gssapi:
    """One login as the ticket cache's user; it asks the key distribution centre, so each step may take a while."""

    name = "GSSAPI"
    blocks = True

    def __init__(self, service: str, host: str) -> None:
        try:
            import gssapi  # where it is not installed
        except ImportError as error:
            raise ConfigError(
                "sasl_mechanism='GSSAPI' needs Kerberos: pip install 'aioproducer[gssapi]', and Kerberos's own libraries."
            ) from error
        self._gssapi: Any = gssapi
        self._target = f"{service}@{host}"
        self._context: Any = None
        self._is_agreed = False

    def start(self) -> Step:
        """Return the first token; raises `MechanismError` if there is no ticket, or none for this broker."""
        return self._checked(self._begin, b"")

    def challenged(self, token: bytes) -> Step:
        """Send tokens until both sides are authenticated, then choose no protection layer, then nothing."""
        if self._is_agreed:
            return Done()
        return self._checked(self._agree if self._context.complete else self._step, token)

    def derived(self, salted: bytes) -> Step:
        """Never called: GSSAPI derives no key."""
        raise AssertionError(salted)

    def explain(self, message: str) -> str:
        """Return the broker's message."""
        return message

    def _begin(self, token: bytes) -> Step:
        gssapi = self._gssapi
        target = gssapi.Name(self._target, gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        self._context = gssapi.SecurityContext(name=target, usage="initiate", flags=flags)
        return SendToken(Token(self._context.step() or b""))

    def _step(self, token: bytes) -> Step:
        return SendToken(Token(self._context.step(token) or b""))

    def _agree(self, token: bytes) -> Step:
        offered = self._context.unwrap(token).message
        if len(offered) != 4 or not offered[0] & _NO_LAYER:
            raise MechanismError(
                "requires a protection layer inside GSSAPI, which Kafka does not support; use SASL_SSL"
            )
        self._is_agreed = True
        return SendToken(Token(self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message))

    def _checked(self, step: Any, token: bytes) -> Step:
        try:
            answer: Step = step(token)
        except self._gssapi.exceptions.GSSError as error:
            why = str(error)
        else:
            return answer
        raise MechanismError(f"cannot be logged in to with a Kerberos ticket for {self._target}: {why}")
