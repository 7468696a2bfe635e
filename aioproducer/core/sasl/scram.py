"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84): both sides prove that they know the password.

hashlib and hmac do the cryptography; here is what is said. Two things are as Kafka has them, not as the RFC: there is no
channel binding (Kafka has no SCRAM-...-PLUS), and names and passwords are taken as they are in UTF-8, without SASLprep,
because brokers store them so: prepared ones would not match where preparing changes them.

The broker chooses how long computing takes, so it is bounded on both sides: a few iterations would give the password away
to whoever pretends to be a broker, very many would keep a thread busy for minutes.

The library scramp is for servers and databases: it prepares names and passwords by SASLprep, and derives the key within
the call that makes a message, so that the key could be neither kept for the next login nor derived in a thread. Tests
use it as the other side.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.mechanism import Derive, Done, MechanismError, Say, Step, Token
from aioproducer.core.sasl.words import shown

__all__ = ["ALGORITHMS", "LEAST_ITERATIONS", "Scram", "salted_password"]

#: The hash of each mechanism.
ALGORITHMS: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})

#: What RFC 7677 and Kafka's own client ask for at least.
LEAST_ITERATIONS: Final = 4096

_MOST_DIGITS: Final = 10  # int() of very long digits is slow
_NO_BINDING: Final = b64encode(b"n,,").decode()


def salted_password(algorithm: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of the password: takes long on purpose. The one secret that everything else follows from."""
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
        self._unproved = ""  # what the proof is about: all that was said
        self._final = ""
        self._signature = b""  # what the broker must answer, once it is known

    def start(self) -> Step:
        """client-first-message."""
        return Say(Token(f"n,,{self._first}".encode()))

    def challenged(self, token: bytes) -> Step:
        """server-first-message, then server-final-message."""
        text = _text(token)
        return self._server_final(text) if self._signature else self._server_first(text)

    def derived(self, salted: bytes) -> Step:
        """client-final-message with the proof."""
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        about = self._unproved.encode()
        signature = self._hmac(stored_key, about)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), about)
        return Say(Token(f"{self._final},p={b64encode(proof).decode()}".encode()))

    def explain(self, message: str) -> str:
        """What the broker says."""
        return message

    def _server_first(self, text: str) -> Step:
        fields = _fields(text, "rsi")
        nonce = fields["r"]
        # Compared in constant time, and longer than ours: a peer that just repeats it has added no randomness.
        begins = hmac.compare_digest(nonce[: len(self._nonce)].encode(), self._nonce.encode())
        if not begins or len(nonce) <= len(self._nonce):
            raise MechanismError("did not continue this client's nonce; somebody may be in between")
        digits = fields["i"]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
            raise MechanismError("told a number of iterations that is none")
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
            raise MechanismError("did not prove that it knows the password; somebody may be in between")
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
    """The attributes of a message: those that are expected come first and in order; unknown ones may follow."""
    parts = text.split(",")
    found = [(part[:1], part[2:]) for part in parts if part[1:2] == "="]
    if len(found) != len(parts):
        raise MechanismError("sent something that is not SCRAM")
    if found[0][0] == "e":
        raise MechanismError(f"refused: {shown(found[0][1])!r}")
    if found[0][0] == "m":
        raise MechanismError("demands an extension of SCRAM that nobody knows here")
    if "".join(name for name, _ in found[: len(expected)]) != expected:
        raise MechanismError("sent a message of SCRAM that is not complete")
    return dict(found[: len(expected)])


def _decoded(text: str) -> bytes:
    try:
        decoded = b64decode(text, validate=True)
    except ValueError:
        decoded = b""
    if not decoded:
        raise MechanismError("sent a message of SCRAM that cannot be read")
    return decoded
