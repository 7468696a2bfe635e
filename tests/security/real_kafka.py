"""What the tests on real Kafka with logins share: users, tokens, and the options of a producer for each listener."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

from aioproducer import OAuthToken
from aioproducer.testing.certificates import CertificateAuthority

__all__ = ["USERS", "options", "unsigned_token"]

USERS = {"alice": "alice-secret", "mallory": "mallory-secret"}


def unsigned_token(user: str = "alice", life_s: float = 600.0) -> OAuthToken:
    def part(claims: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    now = time.time()
    return OAuthToken(f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now, 'exp': now + life_s})}.")


def options(
    authority: CertificateAuthority, listener: str, mechanism: str | None = None, **more: Any
) -> dict[str, Any]:
    protocol = {"MTLS": "SSL", "REAUTH": "SASL_SSL", "SIGNED": "SASL_SSL"}.get(listener, listener)
    given: dict[str, Any] = {"security_protocol": protocol, "close_timeout_ms": 10_000}
    if protocol.endswith("SSL"):
        given["ssl_truststore_certificates"] = authority.pem
    if mechanism == "OAUTHBEARER":
        given |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": unsigned_token}
    elif mechanism is not None:
        given |= {"sasl_mechanism": mechanism, "sasl_username": "alice", "sasl_password": "alice-secret"}
    return given | more
