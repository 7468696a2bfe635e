"""A client's files for the secured fake broker, as a Kafka administrator hands them out."""

from __future__ import annotations

from pathlib import Path

from aioproducer.testing.broker.secured import SecuredBroker

__all__ = ["profiles_for", "properties_for"]


def properties_for(broker: SecuredBroker, directory: Path, *more: str) -> Path:
    """The path of a .properties file with alice's login, and the authority's certificate beside it."""
    options = broker.client_options
    authority = directory / "ca.pem"
    authority.write_text(options["ssl_truststore_certificates"])
    file = directory / "client.properties"
    lines = [
        f"bootstrap.servers={broker.bootstrap_servers}",
        "security.protocol=SASL_SSL",
        f"ssl.truststore.location={authority}",
        "ssl.truststore.type=PEM",
        f"sasl.mechanism={options['sasl_mechanism']}",
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{options["sasl_username"]}" password="{options["sasl_password"]}";',
    ]
    file.write_text("\n".join([*lines, *more, ""]))
    return file


def profiles_for(broker: SecuredBroker, home: Path) -> None:
    """Writes the profile ``secured`` with the same; ``home`` is the value of XDG_CONFIG_HOME."""
    options = broker.client_options
    file = home / "aioproducer" / "profiles.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        "[secured]\n"
        f'bootstrap_servers = ["{broker.bootstrap_servers}"]\n'
        'security.protocol = "SASL_SSL"\n'
        f'ssl_truststore_certificates = """{options["ssl_truststore_certificates"]}"""\n'
        f'sasl_mechanism = "{options["sasl_mechanism"]}"\n'
        f'sasl_username = "{options["sasl_username"]}"\n'
        f'sasl_password = "{options["sasl_password"]}"\n'
        "linger_ms = 7\n"
        "enable_idempotence = true\n"
    )
    file.chmod(0o600)
