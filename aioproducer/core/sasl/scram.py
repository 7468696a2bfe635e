"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84): both sides prove that they know the password.

hashlib and hmac do the cryptography; this module creates and checks the messages. Two things follow Kafka, not the RFC:
there is no channel binding (Kafka has no SCRAM-...-PLUS), and names and passwords are encoded in UTF-8 without
SASLprep, because brokers store them that way: prepared ones would not match if the preparation changed them.

The broker chooses the number of iterations, so it is bounded on both sides: too few would reveal the password to an
impostor, too many would keep a thread busy for minutes.

The library scramp is for servers and databases: it applies SASLprep, and derives the key inside the call that creates a
message, so the key could be neither kept for the next login nor derived in a thread. Tests use it as the other side.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.mechanism import Derive, Done, MechanismError, SendToken, Step, Token
from aioproducer.core.sasl.words import shown

__all__ = ["ALGORITHMS", "LEAST_ITERATIONS", "Scram", "salted_password"]

#: The hash of each mechanism.
ALGORITHMS: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})

#: The minimum of RFC 7677 and of Kafka's own client.
LEAST_ITERATIONS: Final = 4096

_MOST_DIGITS: Final = 10  # int() of very long digits is slow
_NO_BINDING: Final = b64encode(b"n,,").decode()


def salted_password(algorithm: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return PBKDF2 of the password, which takes long on purpose. All other values derive from this secret."""
    return hashlib.pbkdf2_hmac(algorithm, password, salt, iterations)


class Scram:
    """One login; ``nonce`` must be fresh, random and printable."""

    blocks = False

    def __init__(self, name: str, username: str, password: Secret, nonce: str, most_iterations: int) -> None:
        self.name = name
        self._password = password
        self._algorithm = ALGORITHMS[name]
        self._nonce = nonce
        self._most_iterations = most_iterations
        self._first = f"n={_escaped(username)},r={nonce}"
        self._unproved = ""  # the messages so far: the proof covers them
        self._final = ""
        self._signature = b""  # the signature that the broker must send, once known

    def start(self) -> Step:
        """Return the client-first-message."""
        return SendToken(Token(f"n,,{self._first}".encode()))

    def challenged(self, token: bytes) -> Step:
        """Handle the server-first-message, then the server-final-message."""
        text = _text(token)
        return self._server_final(text) if self._signature else self._server_first(text)

    def derived(self, salted: bytes) -> Step:
        """Return the client-final-message with the proof."""
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        about = self._unproved.encode()
        signature = self._hmac(stored_key, about)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), about)
        return SendToken(Token(f"{self._final},p={b64encode(proof).decode()}".encode()))

    def explain(self, message: str) -> str:
        """Return the broker's message."""
        return message

    def _server_first(self, text: str) -> Step:
        fields = _fields(text, "rsi")
        nonce = fields["r"]
        # Compared in constant time, and must be longer than ours: a peer that just repeats it has added no randomness.
        begins = hmac.compare_digest(nonce[: len(self._nonce)].encode(), self._nonce.encode())
        if not begins or len(nonce) <= len(self._nonce):
            raise MechanismError("did not continue this client's nonce; the connection may be intercepted")
        digits = fields["i"]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
            raise MechanismError("sent an invalid number of iterations")
        iterations = int(digits)
        if not LEAST_ITERATIONS <= iterations <= self._most_iterations:
            raise MechanismError(
                f"wants {iterations} iterations of SCRAM, and {LEAST_ITERATIONS} to {self._most_iterations} are accepted "
                f"(sasl_scram_max_iterations)"
            )
        self._final = f"c={_NO_BINDING},r={nonce}"
        self._unproved = f"{self._first},{text},{self._final}"
        return Derive(self._algorithm, self._password, _decoded(fields["s"]), iterations)

    def _server_final(self, text: str) -> Step:
        fields = _fields(text, "v")
        if not hmac.compare_digest(_decoded(fields["v"]), self._signature):
            raise MechanismError("did not prove that it knows the password; the connection may be intercepted")
        return Done()

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._algorithm)


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise MechanismError("sent something that is not SCRAM") from None


def _fields(text: str, expected: str) -> dict[str, str]:
    """Return the attributes of a message: the expected ones come first and in order; unknown ones may follow."""
    parts = text.split(",")
    found = [(part[:1], part[2:]) for part in parts if part[1:2] == "="]
    if len(found) != len(parts):
        raise MechanismError("sent something that is not SCRAM")
    if found[0][0] == "e":
        raise MechanismError(f"refused: {shown(found[0][1])!r}")
    if found[0][0] == "m":
        raise MechanismError("requires a SCRAM extension that is not supported here")
    if "".join(name for name, _ in found[: len(expected)]) != expected:
        raise MechanismError("sent an incomplete SCRAM message")
    return dict(found[: len(expected)])


def _decoded(text: str) -> bytes:
    try:
        decoded = b64decode(text, validate=True)
    except ValueError:
        decoded = b""
    if not decoded:
        raise MechanismError("sent a SCRAM message that cannot be read")
    return decoded
