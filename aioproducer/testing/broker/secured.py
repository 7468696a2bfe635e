"""A fake broker that wants TLS and a login, and what a producer needs to be let in."""

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
    """A `FakeBroker` with an authority of its own, and a user alice with the password alice-secret."""

    def __init__(self, topics: Mapping[str, int | TopicSpec] | None = None, *, logins: Logins | None = None) -> None:
        self.authority = CertificateAuthority()
        super().__init__(
            topics=topics,
            tls=self.authority.server_context(),
            logins=logins or Logins({"alice": "alice-secret"}),
        )

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of a producer of alice's, by SCRAM-SHA-256; others may be put in their place."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_certificates": self.authority.pem,
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "alice-secret",
        }


def secured_fake_broker(topics: Mapping[str, int | TopicSpec] | None = None) -> SecuredBroker:
    """A secured broker, to be entered."""
    return SecuredBroker(topics)
