"""Signed tokens for tests: an identity provider reduced to a key and a file. Needs the extra ``testing``."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final

from aioproducer.config import OAuthToken

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TokenIssuer"]

_KEY_ID: Final = "test-key"
_LIFE_S: Final = 600.0


class TokenIssuer:
    """Signs JSON Web Tokens (RS256), and writes the public key that verifies them into the file ``keys`` (a JWKS).

    ::

        issuer = TokenIssuer(directory / "jwks.json")
        with KafkaCluster(security=KafkaSecurity(authority, {}, signed_tokens=issuer)) as kafka:
            producer = Producer(kafka.bootstrap("SIGNED"), sasl_oauth_token_provider=issuer.token, ...)
    """

    def __init__(self, keys: Path, name: str = "https://issuer.test", audience: str = "kafka") -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.name = name
        self.audience = audience
        self.url = keys.absolute().as_uri()
        public = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": _KEY_ID,
            "n": _number(public.n),
            "e": _number(public.e),
        }
        keys.write_text(json.dumps({"keys": [key]}))

    def token(self, user: str = "alice", life_s: float = _LIFE_S, **claims: object) -> OAuthToken:
        """A token for the user that is valid for ``life_s`` seconds; ``claims`` override the default ones."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        now = int(time.time())
        defaults = {"iss": self.name, "aud": self.audience, "sub": user, "iat": now, "exp": now + int(life_s)}
        said = f"{_part({'alg': 'RS256', 'kid': _KEY_ID})}.{_part(defaults | claims)}"
        return OAuthToken(f"{said}.{_base64(self._key.sign(said.encode(), PKCS1v15(), SHA256()))}")


def _part(content: dict[str, object]) -> str:
    return _base64(json.dumps(content).encode())


def _number(number: int) -> str:
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
