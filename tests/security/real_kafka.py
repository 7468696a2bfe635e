"""Shared by the tests on real Kafka with logins: users, tokens, and the options of a producer for each listener."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own __all__ leaves them out
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from aioproducer import OAuthToken
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import until

if TYPE_CHECKING:
    from aioproducer.testing.kafka import KafkaCluster

__all__ = ["USERS", "AclOperation", "ResourceType", "grant", "options", "unsigned_token"]

#: alice may do everything. Other users may do only what a test grants them.
USERS = {name: f"{name}-secret" for name in ("alice", "mallory", "bob", "carol", "dave")}


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


async def grant(kafka: KafkaCluster, user: str, right: AclOperation, kind: ResourceType, name: str) -> None:
    """Allow the user to do this, and wait until the broker knows."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    about = (kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", right, AclPermissionType.ALLOW)
    for created in admin.create_acls([AclBinding(*about)]).values():
        created.result(30)
    await until(lambda: admin.describe_acls(AclBindingFilter(*about)).result(30))
