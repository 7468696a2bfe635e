"""AWS_MSK_IAM: a signed request to connect, made elsewhere, is all that is said."""

from __future__ import annotations

from aioproducer.core.sasl.mechanism import Done, MechanismError, Say, Step, Token

__all__ = ["MskIam"]


class MskIam:
    """Shows the signed request; the broker answers with a request id, for its logs."""

    name = "AWS_MSK_IAM"
    blocks = False

    def __init__(self, payload: Token) -> None:
        self._payload = payload

    def start(self) -> Step:
        """The one message."""
        return Say(self._payload)

    def challenged(self, token: bytes) -> Step:
        """A broker that accepts says so in a JSON object."""
        if not token.lstrip().startswith(b"{"):
            raise MechanismError("did not answer as a broker of MSK does")
        return Done()

    def derived(self, salted: bytes) -> Step:
        """Never asked for."""
        raise AssertionError(salted)

    def explain(self, message: str) -> str:
        """What the broker says."""
        return message
