"""A fake broker that requires TLS and a login, and a producer's options for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.testing.broker.fake_broker import FakeBroker
from aioproducer.testing.broker.logins import Logins
from aioproducer.testing.certificates import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.testing.broker.cluster_state import TopicSpec

__all__ = ["SecuredBroker", "secured_fake_broker"]


class SecuredBroker(FakeBroker):
    """A `FakeBroker` with its own certificate authority, and a user alice with the password alice-secret."""

    def __init__(self, topics: Mapping[str, int | TopicSpec] | None = None, *, logins: Logins | None = None) -> None:
        self.authority = CertificateAuthority()
        super().__init__(
            topics=topics,
            tls=self.authority.server_context(),
            logins=logins or Logins({"alice": "alice-secret"}),
        )

    @property
    def client_options(self) -> dict[str, Any]:
        """Options for a producer with alice's login (SCRAM-SHA-256); may be overridden."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_certificates": self.authority.pem,
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "alice-secret",
        }


def secured_fake_broker(topics: Mapping[str, int | TopicSpec] | None = None) -> SecuredBroker:
    """A fake broker that requires TLS and a login, with the user alice; use it as a context manager."""
    return SecuredBroker(topics)
