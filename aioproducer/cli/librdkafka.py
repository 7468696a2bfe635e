"""The connection options of our configuration, translated for the verbs that read back with confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aioproducer._config.secret import Secret
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

__all__ = ["connection_options"]

#: The options of a connection, and librdkafka's names for them.
_NAMES: Final[Mapping[str, str]] = {
    "client_id": "client.id",
    "client_dns_lookup": "client.dns.lookup",
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_key_password": "ssl.key.password",
    "ssl_truststore_certificates": "ssl.ca.pem",
    "ssl_keystore_certificate_chain": "ssl.certificate.pem",
    "ssl_keystore_key": "ssl.key.pem",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.username",
    "sasl_password": "sasl.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
}
#: librdkafka takes the tokens of these from a callback or from options that ours do not translate to.
_WITH_TOKENS: Final = ("OAUTHBEARER", "AWS_MSK_IAM")


def connection_options(config: ProducerConfig) -> dict[str, str]:
    """The options of librdkafka for the same cluster, TLS and login; secrets in the clear.

    Raises Trouble for a login that cannot be translated.
    """
    if config.security_protocol.startswith("SASL") and config.sasl_mechanism in _WITH_TOKENS:
        raise Trouble(
            f"sasl_mechanism={config.sasl_mechanism!r}: this verb also reads with confluent-kafka, which has other options "
            "for a login with tokens. Use a login by PLAIN, SCRAM, GSSAPI or a certificate."
        )
    found = {"bootstrap.servers": ",".join(config.bootstrap_servers)}
    for name, theirs in _NAMES.items():
        value = getattr(config, name)
        if value is not None and (not name.startswith("sasl_") or config.security_protocol.startswith("SASL")):
            found[theirs] = value.reveal() if isinstance(value, Secret) else str(value)
    return found
