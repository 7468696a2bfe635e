"""AWS_MSK_IAM: the client's only message is a signed request, which the caller creates."""

from __future__ import annotations

from aioproducer.core.sasl.mechanism import Done, MechanismError, SendToken, Step, Token

__all__ = ["MskIam"]


class MskIam:
    """Sends the signed request; the broker answers with a request id, for its logs."""

    name = "AWS_MSK_IAM"
    blocks = False

    def __init__(self, payload: Token) -> None:
        self._payload = payload

    def start(self) -> Step:
        """Return the only message."""
        return SendToken(self._payload)

    def challenged(self, token: bytes) -> Step:
        """Raise unless the answer is a JSON object: a broker accepts with one."""
        if not token.lstrip().startswith(b"{"):
            raise MechanismError("did not answer like an MSK broker")
        return Done()

    def derived(self, salted: bytes) -> Step:
        """Never called: AWS_MSK_IAM derives no key."""
        raise AssertionError(salted)

    def explain(self, message: str) -> str:
        """Return the broker's message."""
        return message
