"""Vendors' configuration snippets and other clients' names are understood."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import pytest

import aioproducer
from aioproducer import ConfigError, ProducerConfig
from aioproducer.config import Secret

CONFLUENT = """
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-lzvrd.us-west4.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='canary+/=';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000
# Best practice for Kafka producer to prevent data loss
acks=all
client.id=ccloud-java-client-3d5b6e
# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-x.us-west4.gcp.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=SRKEY:canary
"""

CONFLUENT_PYTHON = """
bootstrap.servers=pkc-lzvrd.us-west4.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=KEY
sasl.password=canary+/=
session.timeout.ms=45000
"""

EVENT_HUBS = """
bootstrap.servers=NAME.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \
password="Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=RootManage;SharedAccessKey=canary+/=";
"""

AIVEN_LIBRDKAFKA = """
metadata.broker.list=kafka-x.aivencloud.com:12691
security.protocol=ssl
ssl.ca.location=ca.pem
ssl.key.location=service.key
ssl.certificate.location=service.cert
"""

AIVEN_SASL = """
bootstrap.servers=kafka-x.aivencloud.com:12702
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required
  username = "avnadmin"
  password = "can\\\\"ary";
ssl.truststore.type=PEM
ssl.truststore.location=ca.pem
"""

MSK = """
bootstrap.servers=b-1.x.kafka.us-east-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""


def test_confluent_cloud(caplog: pytest.LogCaptureFixture) -> None:
    read = ProducerConfig.from_properties(CONFLUENT)

    assert (read.sasl_mechanism, read.sasl_username, read.sasl_password) == ("PLAIN", "KEY", Secret("canary+/="))
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == 1
    assert "session.timeout.ms, schema.registry.url, basic.auth.credentials.source, basic.auth.user.info" in reported[0]
    assert "canary" not in reported[0] + repr(read)


def test_confluent_cloud_for_librdkafka() -> None:
    assert ProducerConfig.from_properties(CONFLUENT_PYTHON) == ProducerConfig(
        "pkc-lzvrd.us-west4.gcp.confluent.cloud:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="KEY",
        sasl_password="canary+/=",
    )


def test_event_hubs() -> None:
    read = ProducerConfig.from_properties(EVENT_HUBS)

    assert read.sasl_username == "$ConnectionString"
    assert read.sasl_password is not None
    assert read.sasl_password.reveal().endswith(";SharedAccessKey=canary+/=")


def test_aiven() -> None:
    read = ProducerConfig.from_properties(AIVEN_LIBRDKAFKA)

    assert (read.ssl_cafile, read.ssl_certfile, read.ssl_keyfile) == ("ca.pem", "service.cert", "service.key")
    assert read.security_protocol == "SSL"


def test_aiven_with_a_password() -> None:
    properties = dict(line.split("=", 1) for line in AIVEN_SASL.replace("\n  ", " ").strip().splitlines())
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace('\\\\"', '\\"')
    read = ProducerConfig.from_properties(properties)

    assert (read.sasl_username, read.sasl_password) == ("avnadmin", Secret('can"ary'))


def test_msk() -> None:
    assert ProducerConfig.from_properties(MSK).sasl_mechanism == "AWS_MSK_IAM"


def test_a_url_holds_user_and_password() -> None:
    read = ProducerConfig.from_url("kafka+sasl-ssl://KEY:canary%2B%2F@host:9092/?sasl_mechanism=SCRAM-SHA-512")

    assert (read.sasl_username, read.sasl_password) == ("KEY", Secret("canary+/"))


@pytest.mark.parametrize(
    "line",
    [
        "com.sun.security.auth.module.JndiLoginModule required user.provider.url=canary;",
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=canary;",
        "org.apache.kafka.common.security.plain.PlainLoginModule optional username='u' password='canary';",
        "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='canary'; x.Y required;",
        "org.apache.kafka.common.security.scram.ScramLoginModule required username='u' password='canary' tokenauth='true';",
        "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='canary;",
    ],
)
def test_a_jaas_line_that_is_more_than_user_and_password_is_refused_and_not_shown(line: str) -> None:
    with pytest.raises(ConfigError, match="nothing else is read from it here") as refused:
        ProducerConfig.from_properties({"bootstrap.servers": "h", "sasl.jaas.config": line})
    assert "canary" not in str(refused.value)


def test_a_mistyped_option_is_refused_even_beside_options_of_other_clients(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with pytest.raises(ConfigError, match="Did you mean 'linger_ms'"):
        ProducerConfig.from_properties({"bootstrap.servers": "h", "session.timeout.ms": "1", "linegr.ms": "5"})


# -- the page of each vendor ------------------------------------------------------------------------------------------------

PACKAGE = Path(aioproducer.__file__).parent
PAGES = sorted((PACKAGE / "vendors").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_properties_and_programs_shown_on_a_page_can_be_loaded(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    for properties in blocks(page, "properties"):
        read = ProducerConfig.from_properties(properties)
        assert read.security_protocol in ("SASL_SSL", "SSL")
        assert (read.sasl_mechanism is None) == (read.security_protocol == "SSL")
    for program in blocks(page, "python"):
        compile(program, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert blocks(page, "properties")
    assert blocks(page, "python")
    assert not caplog.records


def test_each_vendor_has_a_page_an_example_and_a_line() -> None:
    index = (PACKAGE / "SECURITY.md").read_text(encoding="utf-8")
    lines = re.findall(r"\(vendors/(\w+)\.md\).*`examples/(\w+)\.py`", index)

    assert sorted(lines) == [(page.stem, page.stem) for page in PAGES]
    assert all((PACKAGE.parent / "examples" / f"{page.stem}.py").exists() for page in PAGES)
