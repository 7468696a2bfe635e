"""The translation of librdkafka's options for the other two clients of an audit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioproducer.spark.audit.connection import connection_of, java_security, objection_to
from aioproducer.spark.audit.offsets import AuditFailed

SERVERS = {"bootstrap.servers": "localhost:9093"}


def test_options_for_reading_do_not_affect_the_connection() -> None:
    config = connection_of({**SERVERS, "security.protocol": "ssl", "fetch.min.bytes": "5", "debug": "all"})

    assert (config.bootstrap_servers, config.security_protocol) == (("localhost:9093",), "SSL")


@pytest.mark.parametrize(
    "option",
    [
        {"ssl.keystore.location": "client.p12"},
        {"enable.ssl.certificate.verification": "false"},
        {"ssl.endpoint.identification.algorithm": "none"},
        {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": "https://idp.example"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_that_only_librdkafka_supports_is_reported(option: dict[str, str]) -> None:
    secret = {"sasl.username": "alice", "sasl.password": "canary-secret"}

    objection = objection_to({**SERVERS, "security.protocol": "SSL", **option, **secret})

    assert objection is not None
    assert re.search(next(iter(option)).replace(".", "[._]"), objection)
    assert "canary-secret" not in objection


def test_a_login_becomes_a_jaas_line() -> None:
    java = java_security(
        {
            **SERVERS,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "al\\ice",
            "sasl.password": 'a "secret"',
        }
    )

    assert java["sasl.mechanism"] == "PLAIN"
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="al\\\\ice" password="a \\"secret\\"";'
    )


def test_files_and_text_become_key_stores_of_pem(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("the authority")

    java = java_security(
        {
            "ssl.ca.location": str(ca),
            "ssl.certificate.pem": "the certificate",
            "ssl.key.pem": "the key",
            "ssl.key.password": "of the key",
        }
    )

    assert java == {
        "ssl.truststore.certificates": "the authority",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.certificate.chain": "the certificate",
        "ssl.keystore.key": "the key",
        "ssl.keystore.type": "PEM",
        "ssl.key.password": "of the key",
    }


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AuditFailed, match=r"ssl\.ca\.location=.*nothing\.pem"):
        java_security({"ssl.ca.location": str(tmp_path / "nothing.pem")})
