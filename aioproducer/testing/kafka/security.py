"""Broker properties for listeners that require TLS, a login or both, and for an authorizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.testing.certificates import CertificateAuthority
    from aioproducer.testing.token_issuer import TokenIssuer

__all__ = ["KafkaSecurity"]

#: The listeners by name. MTLS requires a client certificate; REAUTH requires a new login every few seconds.
_LISTENERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SSL": "SSL",
        "MTLS": "SSL",
        "SASL_PLAINTEXT": "SASL_PLAINTEXT",
        "SASL_SSL": "SASL_SSL",
        "REAUTH": "SASL_SSL",
    }
)
_LOGIN_MODULES: Final = "org.apache.kafka.common.security"
_SIGNED: Final = "SIGNED"
_SIGNED_VALIDATOR: Final = f"{_LOGIN_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
_ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_UNSECURED: Final = f"{_LOGIN_MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """The ``security`` of a `KafkaCluster`: adds the listeners SSL, MTLS, SASL_PLAINTEXT, SASL_SSL and REAUTH.

    ``users`` are names and passwords, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; OAUTHBEARER accepts any unsigned token.
    Users other than ``super_users`` need ACLs for everything, except on the listeners without a login. ``reauth_ms`` is
    the lifetime of a login on the listener REAUTH.

    ``signed_tokens`` adds the listener SIGNED (SASL_SSL), where OAUTHBEARER accepts only tokens of that issuer.
    """

    authority: CertificateAuthority
    users: Mapping[str, str] = field(repr=False)
    super_users: Sequence[str] = ()
    reauth_ms: int = 10_000
    signed_tokens: TokenIssuer | None = None

    @property
    def listeners(self) -> Mapping[str, str]:
        """Name and security protocol of each listener."""
        return _LISTENERS if self.signed_tokens is None else {**_LISTENERS, _SIGNED: "SASL_SSL"}

    @property
    def jvm_options(self) -> Sequence[str]:
        """Options for the brokers' JVMs."""
        # From Kafka 4.0 on a broker only reads keys from URLs on this list.
        return () if self.signed_tokens is None else (f"-D{_ALLOWED_URLS}={self.signed_tokens.url}",)

    def properties(self) -> dict[str, str]:
        """For brokers and controllers; certificates are included as text (KIP-651)."""
        server = self.authority.issue("localhost", "127.0.0.1", common_name="localhost")
        supers = ";".join(f"User:{name}" for name in ("ANONYMOUS", *self.super_users))
        properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": supers,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": _one_line(server.key),
            "ssl.keystore.certificate.chain": _one_line(server.certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _one_line(self.authority.pem),
            "ssl.client.auth": "none",
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
            "listener.name.reauth.connections.max.reauth.ms": str(self.reauth_ms),
        }
        for name, protocol in self.listeners.items():
            if protocol.startswith("SASL"):
                properties |= self._logins(f"listener.name.{name.lower()}")
        if self.signed_tokens is not None:
            properties |= _signed_tokens(f"listener.name.{_SIGNED.lower()}", self.signed_tokens)
        return properties

    def _logins(self, listener: str) -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        scram = f"{_LOGIN_MODULES}.scram.ScramLoginModule required;"
        return {
            f"{listener}.plain.sasl.jaas.config": f"{_LOGIN_MODULES}.plain.PlainLoginModule required {users};",
            f"{listener}.scram-sha-256.sasl.jaas.config": scram,
            f"{listener}.scram-sha-512.sasl.jaas.config": scram,
            # The broker itself logs in with the claim, and does not start without it.
            f"{listener}.oauthbearer.sasl.jaas.config": (
                f"{_LOGIN_MODULES}.oauthbearer.OAuthBearerLoginModule required "
                f'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorAllowableClockSkewMs="3000";'
            ),
            f"{listener}.oauthbearer.sasl.server.callback.handler.class": _UNSECURED,
        }


def _signed_tokens(listener: str, issuer: TokenIssuer) -> dict[str, str]:
    return {
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": _SIGNED_VALIDATOR,
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        f"{listener}.sasl.oauthbearer.expected.issuer": issuer.name,
        f"{listener}.sasl.oauthbearer.expected.audience": issuer.audience,
    }


def _one_line(pem: str) -> str:
    return pem.strip().replace("\n", "\\n")
