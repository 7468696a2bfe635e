from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import pickle
import re
import ssl
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast, get_type_hints

import pytest

from aioproducer.config import (
    OPTIONS,
    Address,
    CompressionByTopic,
    ProducerConfig,
    ProducerOptions,
    Secret,
    describe_options,
    parse_bootstrap_servers,
)
from aioproducer.errors import ConfigError
from aioproducer.serializers import JsonSerializer, StringSerializer

CANARY = "c4n4ry-s3cret"
SASL: dict[str, object] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": CANARY,
}
OAUTH: dict[str, object] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

Options: TypeAlias = Mapping[str, object]


def config(**options: object) -> ProducerConfig:
    """Options as a caller without a type checker may give them."""
    make = cast("Callable[..., ProducerConfig]", ProducerConfig)
    return make("localhost:9092", **options)


def refusal(**options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**options)
    return str(caught.value)


# --- The options as declared


def test_defaults_are_those_of_the_java_producer_4() -> None:
    plain = ProducerConfig("localhost")

    java = {
        "acks": -1,
        "retries": 2147483647,
        "delivery_timeout_ms": 120000,
        "max_block_ms": 60000,
        "request_timeout_ms": 30000,
        "linger_ms": 5,
        "buffer_memory": 33554432,
        "max_request_size": 1048576,
        "max_in_flight_requests_per_connection": 5,
        "compression_type": "none",
        "enable_idempotence": True,
        "transaction_timeout_ms": 60000,
        "metadata_max_age_ms": 300000,
        "metadata_max_idle_ms": 300000,
        "metadata_recovery_strategy": "rebootstrap",
        "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1000,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1000,
        "socket_connection_setup_timeout_ms": 10000,
        "socket_connection_setup_timeout_max_ms": 30000,
        "connections_max_idle_ms": 540000,
        "send_buffer_bytes": 131072,
        "receive_buffer_bytes": 32768,
        "security_protocol": "PLAINTEXT",
        "client_dns_lookup": "use_all_dns_ips",
        "partitioner_adaptive_partitioning_enable": True,
    }
    assert {name: getattr(plain, name) for name in java} == java
    assert plain.batch_size == 262_144, "the one that differs: Java allocates its 16,384 bytes for each batch"


def test_every_default_is_a_value_that_the_option_accepts() -> None:
    for option in OPTIONS.values():
        if option.name != "bootstrap_servers" and not (option.default is None and option.kind.optional):
            assert option.kind.check(option.name, option.default) == option.default


#: Where a caller may give more than the configuration keeps: the annotation of the dataclass, and that of the keyword.
WIDER_KEYWORDS = {
    "acks": ("Acks", "Literal[-1, 0, 1, 'all', '-1', '0', '1']"),
    "compression_type": (
        "CompressionType | PreferredCodecs | CompressionByTopic",
        "CompressionType | Sequence[CompressionType] | Mapping[str, CompressionType | Sequence[CompressionType]]",
    ),
    "interceptors": ("tuple[object, ...]", "Sequence[object]"),
    "metric_reporters": ("tuple[MetricReporter, ...]", "Sequence[MetricReporter]"),
    "ssl_cipher_suites": ("tuple[str, ...]", "str | Sequence[str]"),
}


def test_dataclass_and_typed_dict_have_the_same_options_with_the_same_annotations() -> None:
    keywords = {name: ref.__forward_arg__ for name, ref in ProducerOptions.__annotations__.items()}

    assert sorted(keywords) == sorted(name for name in OPTIONS if name != "bootstrap_servers")
    for name, keyword in keywords.items():
        kept = OPTIONS[name].type
        if name in WIDER_KEYWORDS:
            assert (kept, keyword.replace('"', "'")) == WIDER_KEYWORDS[name]
        elif kept == "Secret | None":
            assert keyword == "str | Secret | None"
        elif "file" in name and kept == "str | None":
            assert keyword == "str | os.PathLike[str] | None"
        else:
            assert kept == keyword
    assert set(get_type_hints(ProducerOptions)) == set(keywords)


def test_every_option_is_documented_once_in_the_table() -> None:
    table = describe_options()

    for option in OPTIONS.values():
        assert len(option.doc) > 10
        assert table.count(f"\n| `{option.name}` |") == 1
    assert "`linger.ms`" in table
    assert OPTIONS["linger_ms"].java_key == "linger.ms"
    assert OPTIONS["partitioner"].java_key == "partitioner.class"
    assert OPTIONS["close_timeout_ms"].java_key is None


def test_the_readme_names_the_options_that_have_no_effect() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (reported,) = re.findall(r"options have no effect here[^:]*:(.*?)\.\n", readme, re.DOTALL)

    idle = {option.name for option in OPTIONS.values() if "no effect" in option.doc}
    assert set(re.findall(r"`(\w+)`", reported)) == idle
    assert "bootstrap_resolve_timeout_ms" in idle


def test_create_is_the_same_as_calling_the_class() -> None:
    assert ProducerConfig.create("a", linger_ms=1) == ProducerConfig("a", linger_ms=1)


# --- Servers


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b ,c:3,", [("a", 1), ("b", 9092), ("c", 3)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        (("a,b:2",), [("a", 9092), ("b", 2)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
        ("10.0.0.1:9092,kafka_1.svc-x.local:80", [("10.0.0.1", 9092), ("kafka_1.svc-x.local", 80)]),
    ],
)
def test_bootstrap_servers_are_read_as_host_and_port(given: Any, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap_servers(given)) == addresses
    assert list(ProducerConfig(given).bootstrap_addresses) == addresses


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "empty"),
        ([], "empty"),
        (None, "host:port"),
        (b"localhost", "must be"),
        (9092, "must be"),
        ([9092], "must be"),
        ("a:9092,a", "twice"),
        ("::1", r"brackets: \[::1\]:9092"),
        ("[localhost]:1", "no IPv6 address"),
        ("[::1]x:1", "not host:port|several colons"),
        ("a:0", "the port 0: must be a number from 1 to 65535"),
        ("a:65536", "must be a number"),
        ({"bootstrap.servers": "a"}, r"from_properties\(\)"),
        ("a:", "an invalid port: must be a number from 1 to 65535"),
        ("a b", "not host:port"),
        ("PLAINTEXT://a:9092", "begins with the scheme PLAINTEXT://"),
        ("u:p@a:9092", "contains an @"),
    ],
)
def test_a_wrong_server_is_refused_with_the_reason(given: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ProducerConfig(given)


def test_ipv6_addresses_are_written_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert ProducerConfig("[::1]").bootstrap_servers == ("[::1]:9092",)


# --- Values


@pytest.mark.parametrize(
    ("given", "kept"), [("all", -1), ("ALL", -1), (-1, -1), ("-1", -1), (1, 1), ("1", 1), (0, 0), ("0", 0)]
)
def test_acks_takes_every_spelling_of_kafka(given: object, kept: int) -> None:
    assert config(acks=given, enable_idempotence=kept == -1).acks == kept


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acks", 2, "'all'"),
        ("acks", True, "'all'"),
        ("acks", 1.0, "'all'"),
        ("linger_ms", -1, "at least 0"),
        ("linger_ms", 5.0, "whole number of milliseconds"),
        ("linger_ms", True, "whole number"),
        ("linger_ms", "5", "whole number"),
        ("linger_ms", None, "leave the option out"),
        ("retries", 2**31, "0 to 2147483647"),
        ("metadata_max_idle_ms", 4999, "at least 5000"),
        ("send_buffer_bytes", -2, "-1 to"),
        ("enable_idempotence", 1, "True or False"),
        ("client_id", b"x", "text"),
        ("transactional_id", "", "not empty"),
        ("compression_type", "zst", "Did you mean 'zstd'"),
        ("compression_type", None, "'none'"),
        ("compression_type", {"logs"}, "or a mapping from topics to these, with '*' for every other topic"),
        ("compression_type", [("logs", "zstd")], "[0] of type tuple: must be one of 'none'"),
        ("compression_type", b"zstd", "of type bytes: must be one of 'none'"),
        ("compression_type", "logs:zstd", "or a mapping from topics to these"),
        ("compression_type", {}, "={}: names no topic. Name at least one, or leave the option out."),
        ("compression_type", {"logs": "zst"}, "['logs']='zst': must be one of 'none'"),
        ("compression_type", {"logs": "zst"}, "Did you mean 'zstd'?"),
        ("compression_type", {"logs": None}, "['logs']=None: must be one of 'none'"),
        ("compression_type", {"logs": {"a": "zstd"}}, "['logs'] of type dict: must be one of 'none'"),
        ("compression_type", {"a b": "zstd"}, "Invalid topic='a b': must be 1 to 249"),
        ("compression_type", {3: "zstd"}, "'*' stands for every other topic"),
        ("sasl_login_refresh_window_factor", 0.4, "0.5 to 1.0"),
        ("key_serializer", "json", "callable"),
        ("value_serializer", object(), "callable"),
        ("partitioner", "sticky", "round_robin"),
        ("partitioner", 3, "callable"),
        ("interceptors", 3, "sequence of objects"),
        ("interceptors", [object()], "on_send"),
        ("metric_reporters", [object()], "record"),
        ("on_delivery_error", 3, "callable"),
        ("ssl_context", "default", "SSLContext"),
        ("ssl_cafile", 3, "path"),
        ("ssl_cafile", PEM, "ssl_truststore_certificates"),
        ("ssl_truststore_certificates", "/etc/ca.pem", "PEM text"),
        ("ssl_cipher_suites", [3], "sequence of OpenSSL's names"),
        ("ssl_cipher_suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "OpenSSL's names"),
        ("client_id", "caf\udce9", "text"),
        ("sasl_password", "caf\udce9", "UTF-8"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, value: object, allowed: str) -> None:
    message = refusal(**{name: value})

    assert name in message
    assert allowed in message


def test_choices_are_matched_without_regard_to_case() -> None:
    assert config(compression_type="ZSTD", security_protocol="ssl").security_protocol == "SSL"


def test_paths_may_be_path_objects() -> None:
    assert config(security_protocol="SSL", ssl_cafile=Path("/etc/ca.pem")).ssl_cafile == "/etc/ca.pem"


# --- Names


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lingerms", "Did you mean 'linger_ms'?"),
        ("linger.ms", "write linger_ms="),
        ("max_batch_size", "an option of aiokafka; here it is called batch_size"),
        ("sasl_plain_username", "here it is called sasl_username"),
        ("queue.buffering.max.ms", "an option of librdkafka; here it is called linger_ms"),
        ("message.timeout.ms", "here it is called delivery_timeout_ms"),
        ("queue_buffering_max_kbytes", "bytes, not kilobytes"),
        ("ssl_keystore_location", "an option of the Java producer; here it is called ssl_certfile"),
        ("interceptor_classes", "here it is called interceptors"),
        ("partitioner_class", "here it is called partitioner"),
        ("metrics.num.samples", "producer.metrics()"),
        ("group_id", "no group"),
        ("sasl.jaas.config", "the options for it here: sasl_username, sasl_password"),
        ("frobnicate", "describe_options()"),
    ],
)
def test_an_unknown_option_is_reported_the_right_name(name: str, sentence: str) -> None:
    assert sentence in refusal(**{name: 1})


# --- What follows, and what contradicts


def test_a_delivery_timeout_that_was_not_given_is_raised_to_linger_and_request_timeout() -> None:
    assert config(linger_ms=100_000).delivery_timeout_ms == 130_000
    assert config(request_timeout_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1


def test_a_delivery_timeout_that_was_given_must_leave_time_for_one_attempt() -> None:
    assert "5 + 30000 = 30005" in refusal(delivery_timeout_ms=30_004)
    assert config(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005
    assert "must be at least" in refusal(delivery_timeout_ms=120_000, linger_ms=100_000)


def test_close_waits_as_long_as_a_delivery_may_take_unless_configured_otherwise() -> None:
    assert config(delivery_timeout_ms=40_000).close_timeout_ms == 40_000
    assert config(close_timeout_ms=7).close_timeout_ms == 7


@pytest.mark.parametrize(
    "undone", [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}]
)
@pytest.mark.parametrize("asked", [{}, {"enable_idempotence": True}])
def test_idempotence_is_never_switched_off_silently(undone: Options, asked: Options) -> None:
    assert "enable_idempotence=False" in refusal(**undone, **asked)
    assert config(**undone, enable_idempotence=False).enable_idempotence is False


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"transactional_id": "t", "enable_idempotence": False}, "needs idempotence"),
        (
            {"transactional_id": "t", "transaction_two_phase_commit_enable": True, "transaction_timeout_ms": 60000},
            "KIP-939",
        ),
        ({"transaction_two_phase_commit_enable": True}, "transactional_id"),
        ({"compression_level": 3}, "no levels"),
        ({"compression_level": 3, "compression_type": "snappy"}, "no levels"),
        ({"compression_level": 0, "compression_type": "gzip"}, "1 to 9, or -1"),
        ({"compression_level": 10, "compression_type": "gzip"}, "1 to 9, or -1"),
        ({"compression_level": 18, "compression_type": "lz4"}, "1 to 17"),
        ({"compression_level": 23, "compression_type": "zstd"}, "22"),
        ({"compression_level": 18, "compression_type": {"a": "zstd", "*": "lz4"}}, "not a level of lz4"),
        ({"compression_level": 3, "compression_type": {"a": "zstd", "b": "snappy"}}, "'snappy', which has no levels"),
        ({"compression_level": 3, "compression_type": {"a": "none"}}, "'none', which has no levels"),
        ({"batch_size": 2000, "buffer_memory": 1000}, "buffer_memory"),
        ({"max_request_size": 2000, "buffer_memory": 1000}, "buffer_memory"),
        ({"retry_backoff_ms": 200, "retry_backoff_max_ms": 100}, "retry_backoff_max_ms=100"),
        ({"reconnect_backoff_ms": 200, "reconnect_backoff_max_ms": 100}, "reconnect_backoff_max_ms=100"),
        ({"partitioner_rack_aware": True}, "client_rack"),
        (
            {"partitioner": "round_robin", "partitioner_ignore_keys": True},
            "partitioner_ignore_keys would not be used with partitioner='round_robin'; leave it out",
        ),
        (
            {"partitioner": "round_robin", "partitioner_rack_aware": True, "client_rack": "a"},
            "partitioner_rack_aware would not be used with partitioner='round_robin'",
        ),
        (
            {
                "partitioner": "round_robin",
                "partitioner_adaptive_partitioning_enable": False,
                "partitioner_availability_timeout_ms": 1,
            },
            "partitioner_adaptive_partitioning_enable, partitioner_availability_timeout_ms would not be used with",
        ),
        (
            {"partitioner": "consistent", "partitioner_rack_aware": True, "client_rack": "a"},
            "partitioner_rack_aware would not be used with partitioner='consistent'",
        ),
        (
            {"partitioner": "consistent_random", "partitioner_ignore_keys": True},
            "partitioner_ignore_keys contradicts partitioner='consistent_random'",
        ),
        (
            {"partitioner": max, "partitioner_ignore_keys": True},
            "partitioner_ignore_keys would not be used with your own partitioner",
        ),
        (
            {"partitioner_adaptive_partitioning_enable": False, "partitioner_availability_timeout_ms": 1},
            "partitioner_availability_timeout_ms=1 would not be used with partitioner_adaptive_partitioning_enable=False",
        ),
        ({"ssl_cafile": "ca.pem"}, "security_protocol to SSL"),
        ({"ssl_check_hostname": False}, "a broker's certificate must match its host name"),
        ({"sasl_mechanism": "PLAIN"}, "security_protocol='PLAINTEXT'"),
        ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, "would not be used"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_username and sasl_password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl_kerberos_service_name"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "aioproducer.oauth"),
        ({**SASL, "sasl_kerberos_service_name": "kafka"}, "not be used with sasl_mechanism='PLAIN'; leave it out"),
        ({**SASL, "sasl_mechanism": "AWS_MSK_IAM"}, "sasl_username, sasl_password would not be used"),
        ({**SASL, "sasl_credentials_provider": dict}, "sasl_username, sasl_password would not be used"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k.pem"}, "ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_keystore_key": PEM}, "belong together"),
        ({"security_protocol": "SSL", "ssl_key_password": "x"}, "needs a key"),
        ({"security_protocol": "SSL", "ssl_cafile": "a", "ssl_truststore_certificates": PEM}, "one of them"),
    ],
)
def test_contradictory_options_are_refused_with_the_way_out(options: Options, sentence: str) -> None:
    assert sentence in refusal(**options)


def test_a_partitioner_that_may_leave_the_choice_to_the_default_excludes_nothing_of_that() -> None:
    shared = config(
        partitioner=max, partitioner_rack_aware=True, client_rack="a", partitioner_availability_timeout_ms=5
    )

    assert shared.partitioner is max
    assert config(partitioner="round_robin", partitioner_ignore_keys=False).partitioner == "round_robin"


async def choose_later(*_: object) -> int:
    return 0


class AsyncMethod:
    async def partition(self, *_: object) -> int:
        return 0


class AsyncCall:
    async def __call__(self, *_: object) -> int:
        return 0


@pytest.mark.parametrize(
    "partitioner",
    [choose_later, functools.partial(choose_later, 1), AsyncMethod(), AsyncMethod().partition, AsyncCall()],
)
def test_a_partitioner_cannot_be_async(partitioner: object) -> None:
    assert "plain function, not async def" in refusal(partitioner=partitioner)


def test_a_context_excludes_the_other_options_of_tls() -> None:
    context = ssl.create_default_context()

    assert config(security_protocol="SSL", ssl_context=context).ssl_context is context
    assert "ssl_cafile would not be used" in refusal(security_protocol="SSL", ssl_context=context, ssl_cafile="x")


def test_sizes_that_were_not_given_fit_into_a_small_buffer_memory() -> None:
    small = config(buffer_memory=1000)

    assert (small.batch_size, small.max_request_size) == (1000, 1000)


def test_reconnect_backoff_alone_is_constant_as_in_java() -> None:
    assert config(reconnect_backoff_ms=20).reconnect_backoff_max_ms == 20
    assert config(reconnect_backoff_ms=20, reconnect_backoff_max_ms=90).reconnect_backoff_max_ms == 90
    assert config(retry_backoff_ms=5000).retry_backoff_max_ms == 5000


# --- Secrets


def leaks(text: str) -> bool:
    return CANARY in text


def test_a_secret_is_masked_in_every_representation() -> None:
    secret = Secret(CANARY)

    assert not any(leaks(shown) for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>40}", "%s" % secret))  # noqa: UP031
    assert not hasattr(secret, "__dict__")
    assert secret.reveal() == CANARY
    assert secret == Secret(CANARY)
    assert secret != Secret("other")
    assert secret != CANARY
    assert len({secret, Secret(secret)}) == 1
    assert pickle.loads(pickle.dumps(secret)) == secret
    with pytest.raises(ConfigError, match="created from a str"):
        Secret(cast("str", CANARY.encode()))


def test_no_secret_stands_in_a_configuration_as_text(caplog: pytest.LogCaptureFixture) -> None:
    secretive = config(
        **SASL,
        ssl_keystore_key="-----BEGIN PRIVATE KEY-----" + CANARY,
        ssl_keystore_certificate_chain=PEM,
        ssl_key_password=CANARY,
    )
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").debug("%s %r", secretive, secretive)

    assert not leaks(repr(secretive) + str(secretive) + caplog.text)
    assert secretive.sasl_password is not None
    assert secretive.sasl_password.reveal() == CANARY
    assert not leaks(str([getattr(secretive, name) for name in OPTIONS]))


@dataclasses.dataclass
class TokenEndpoint:
    secret: str

    def token(self) -> str:
        return self.secret


@dataclasses.dataclass
class Recorder:
    api_key: str

    def record(self, name: str, value: float) -> None: ...


def test_foreign_objects_are_shown_without_what_they_know() -> None:
    secretive = config(
        **OAUTH,
        sasl_oauth_token_provider=functools.partial(TokenEndpoint, CANARY),
        value_serializer=functools.partial(str.encode, errors=CANARY),
        partitioner=functools.partial(max, CANARY),
        metric_reporters=[Recorder(CANARY)],
        ssl_keystore_key=PEM,
        ssl_keystore_certificate_chain=f"{PEM}-----BEGIN PRIVATE KEY-----\n{CANARY}",
    )

    assert not leaks(repr(secretive))
    assert "sasl_oauth_token_provider=<partial>" in repr(secretive)
    assert "metric_reporters=(<Recorder>,)" in repr(secretive)


def wrong_password_type() -> object:
    return config(**{**SASL, "sasl_password": CANARY.encode()})


def wrong_key_type() -> object:
    return config(security_protocol="SSL", ssl_truststore_certificates=CANARY.encode())


def token_for_provider() -> object:
    return config(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=CANARY)


def key_as_file() -> object:
    return config(security_protocol="SSL", ssl_keyfile=f"-----BEGIN PRIVATE KEY-----\n{CANARY}")


def jaas() -> object:
    line = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}" x;'
    return ProducerConfig.from_properties({"bootstrap.servers": "h", "sasl.jaas.config": line})


def broken_escape() -> object:
    return ProducerConfig.from_properties(f"bootstrap.servers=h\nsasl.password={CANARY}\\u12")


def keystore_password() -> object:
    return ProducerConfig.from_properties({"bootstrap.servers": "h", "ssl.keystore.password": CANARY})


def unencoded_slash() -> object:
    return ProducerConfig.from_url(f"kafka+sasl-ssl://u:x/{CANARY}@h")


def unencoded_question_mark() -> object:
    return ProducerConfig.from_url(f"kafka+sasl-ssl://u:{CANARY}?{CANARY}=1@h")


def forgotten_host() -> object:
    return ProducerConfig.from_url(f"kafka+sasl-ssl://u:{CANARY}")


def two_ats() -> object:
    return ProducerConfig.from_url(f"kafka+sasl-ssl://u@s:{CANARY}#{CANARY}@h")


def wrong_scheme() -> object:
    return ProducerConfig.from_url(f"kafak://u:{CANARY}@h")


def password_over_plaintext() -> object:
    return ProducerConfig.from_url(f"kafka://u:{CANARY}@h")


def credentials_in_servers() -> object:
    return ProducerConfig(f"u:{CANARY}@h:9092")


def secret_in_env() -> object:
    return ProducerConfig.from_env(
        environ={
            "KAFKA_BOOTSTRAP_SERVERS": "h",
            "KAFKA_SASL_PASSWORD": CANARY,
            "KAFKA_SASL_OAUTH_TOKEN_PROVIDER": CANARY,
        }
    )


def credentials_among_servers() -> object:
    return parse_bootstrap_servers([f"u:{CANARY}@h", 1])


def properties_with_colons() -> object:
    return ProducerConfig.from_properties(f"sasl.password: {CANARY}")


def properties_with_blanks() -> object:
    return ProducerConfig.from_properties(f"sasl.password {CANARY}")


def url_as_properties() -> object:
    return ProducerConfig.from_properties(f"kafka+sasl-ssl://u:{CANARY}@h")


def url_with_options_as_properties() -> object:
    return ProducerConfig.from_properties(f"kafka+sasl-ssl://u:{CANARY}@h/?acks=all")


def bytes_as_properties() -> object:
    return ProducerConfig.from_properties(cast("str", f"sasl.password={CANARY}".encode()))


def password_beside_the_user_name() -> object:
    return config(**{**SASL, "sasl_username": ("u", CANARY)})


def password_beside_the_mechanism() -> object:
    return config(**{**SASL, "sasl_mechanism": {"PLAIN": CANARY}})


def url_as_server() -> object:
    return ProducerConfig(f"sasl://u:{CANARY}@h")


def comma_in_the_password_of_a_server() -> object:
    return ProducerConfig(f"sasl://u:{CANARY},x@h")


def comma_in_the_password_before_a_server() -> object:
    return ProducerConfig([f"u:{CANARY},x@h"])


def forgotten_at() -> object:
    return ProducerConfig(f"u:{CANARY}")


def two_colons() -> object:
    return ProducerConfig(f"u:{CANARY}:9092")


def scheme_without_an_at() -> object:
    return ProducerConfig(f"sasl://u:{CANARY}")


def token_for_reporters() -> object:
    return config(metric_reporters=[CANARY])


def latin_password_in_a_url() -> object:
    return ProducerConfig.from_url(f"kafka+sasl-ssl://u:%E9{CANARY}@h")


@pytest.mark.parametrize(
    "mistake",
    [
        credentials_among_servers,
        properties_with_colons,
        properties_with_blanks,
        url_as_properties,
        url_with_options_as_properties,
        bytes_as_properties,
        password_beside_the_user_name,
        password_beside_the_mechanism,
        url_as_server,
        comma_in_the_password_of_a_server,
        comma_in_the_password_before_a_server,
        forgotten_at,
        two_colons,
        scheme_without_an_at,
        token_for_reporters,
        latin_password_in_a_url,
        wrong_password_type,
        wrong_key_type,
        token_for_provider,
        key_as_file,
        jaas,
        broken_escape,
        keystore_password,
        unencoded_slash,
        unencoded_question_mark,
        forgotten_host,
        two_ats,
        wrong_scheme,
        password_over_plaintext,
        credentials_in_servers,
        secret_in_env,
    ],
)
def test_no_error_shows_a_secret(mistake: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        mistake()

    error: BaseException | None = caught.value
    while error is not None:
        assert not leaks(str(error) + repr(error.args))
        error = error.__cause__ or error.__context__
    frames = "".join(traceback.format_exception(caught.value))
    assert not leaks(frames)


@pytest.mark.parametrize(
    ("mistake", "way_out"),
    [
        (properties_with_colons, "bootstrap_servers is empty"),
        (properties_with_blanks, "bootstrap_servers is empty"),
        (url_as_properties, r"pass it to from_url\(\)"),
        (url_with_options_as_properties, r"pass it to from_url\(\)"),
        (bytes_as_properties, "of type bytes"),
        (password_beside_the_user_name, "Invalid sasl_username of type tuple"),
        (password_beside_the_mechanism, "Invalid sasl_mechanism of type dict"),
        (url_as_server, "sasl_username and sasl_password"),
        (comma_in_the_password_of_a_server, "sasl_username and sasl_password"),
        (comma_in_the_password_before_a_server, "sasl_username and sasl_password"),
        (forgotten_at, "has an invalid port: must be a number from 1 to 65535"),
        (two_colons, "several colons"),
        (scheme_without_an_at, "begins with the scheme sasl://"),
    ],
)
def test_an_error_that_hides_a_secret_still_names_the_way_out(mistake: Callable[[], object], way_out: str) -> None:
    with pytest.raises(ConfigError, match=way_out):
        mistake()


def test_a_configuration_that_was_refused_can_still_be_shown() -> None:
    half_built = ProducerConfig.__new__(ProducerConfig)
    with pytest.raises(ConfigError):
        half_built.__init__("localhost", linger_ms=-1)  # type: ignore[misc]

    assert repr(half_built) == "<ProducerConfig, not complete>"


def test_a_file_is_reported_by_its_path(tmp_path: Path) -> None:
    for path in (str(tmp_path / "no such.properties"), "C:\\no\\such.properties", "no such.properties"):
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            ProducerConfig.from_properties(path)
        assert repr(path) in str(caught.value)


# --- As a value


def double(obj: object) -> bytes:
    return str(obj).encode() * 2


def test_a_configuration_travels_to_another_process_with_its_secrets() -> None:
    travelling = config(**SASL, linger_ms=7, value_serializer=double, key_serializer=JsonSerializer(sort_keys=True))

    arrived = pickle.loads(pickle.dumps(travelling))

    assert arrived == travelling
    assert arrived.sasl_password.reveal() == CANARY
    assert arrived.is_explicit("linger_ms")
    assert not arrived.is_explicit("delivery_timeout_ms")


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("value_serializer", lambda obj: obj, {}),  # pyright: ignore[reportUnknownLambdaType]
        ("ssl_context", ssl.create_default_context(), {"security_protocol": "SSL"}),
    ],
)
def test_an_option_that_cannot_be_pickled_is_named(
    name: str, value: object, more: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer._config.pickling.PICKLERS", ())

    with pytest.raises(ConfigError, match=f"because {name}=.*importable"):
        pickle.dumps(config(**{name: value}, **more))


def test_a_pickler_that_can_pickle_a_lambda_is_let_do_so() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    travelling = config(value_serializer=lambda obj: str(obj).encode())

    arrived = pickle.loads(cloudpickle.dumps(travelling))

    assert arrived.value_serializer(5) == b"5"


def test_a_configuration_is_immutable_and_copies_are_itself() -> None:
    plain = config()

    with pytest.raises(AttributeError):
        plain.linger_ms = 9  # type: ignore[misc]
    assert copy.copy(plain) is plain
    assert copy.deepcopy(plain) is plain


def test_equal_options_make_equal_configurations() -> None:
    assert config(linger_ms=5) == config()
    assert hash(config(linger_ms=5)) == hash(config())
    assert config(linger_ms=6) != config()


def test_replace_checks_again_and_derives_again() -> None:
    slow = config(linger_ms=100_000)

    assert slow.replace(linger_ms=5).delivery_timeout_ms == 120_000
    assert slow.replace("other").bootstrap_servers == ("other:9092",)
    assert config(compression_type="zstd", compression_level=3).replace(
        compression_type="none", compression_level=None
    ) == config(compression_type="none")
    with pytest.raises(ConfigError, match="must be at least"):
        slow.replace(delivery_timeout_ms=1)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    shown = repr(config(linger_ms=20, batch_size=262_144, value_serializer=double, acks="1", enable_idempotence=False))

    assert shown == (
        "ProducerConfig('localhost:9092', value_serializer=double, acks=1, linger_ms=20, enable_idempotence=False)"
    )
    assert repr(config(**SASL)).endswith("sasl_username='alice', sasl_password=Secret('***'))")


# --- Codecs by topic

BY_TOPIC = {"logs": "zstd", "Images": "none", "*": "lz4"}
AS_TEXT = "logs:zstd,Images:none,*:lz4"


def test_codecs_by_topic_can_be_given_in_every_form() -> None:
    expected = config(compression_type=BY_TOPIC)

    assert [expected.compression_of(topic) for topic in ("logs", "Images", "orders")] == ["zstd", "none", "lz4"]
    assert config(compression_type={"logs": "ZSTD"}).compression_of("orders") == "none"
    assert config(compression_type="gzip").compression_of("logs") == "gzip"
    servers = "bootstrap.servers=localhost:9092\n"
    assert ProducerConfig.from_properties(f"{servers}compression.type={AS_TEXT}\n") == expected
    assert ProducerConfig.from_properties(f"{servers}compression.type= logs : zstd , Images:none,,*:LZ4\n") == expected
    assert ProducerConfig.from_properties({"bootstrap.servers": "localhost", "compression.type": BY_TOPIC}) == expected
    assert ProducerConfig.from_url(f"kafka://localhost?compression_type={AS_TEXT}") == expected
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "localhost", "KAFKA_COMPRESSION_TYPE": AS_TEXT}
    assert ProducerConfig.from_env(environ=environ) == expected
    assert str(expected.compression_type) == AS_TEXT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("*:lz4,*:zstd", "='*:lz4,*:zstd': names '*' twice. Name every topic once."),
        ("a:lz4,*:zstd,a:lz4", "names 'a' twice"),
        (
            "logs:zstd,lz4",
            "='logs:zstd,lz4': 'lz4' is not topic:codec. Write logs:zstd|gzip,*:lz4, or zstd,lz4 for all",
        ),
        ("zstd|lz4", "='zstd|lz4': must be one of 'none'"),
        (",", "=[]: names no codec. Name at least one, or leave the option out."),
        (",:", "Invalid topic=''"),
        ("logs:|", "['logs']=[]: names no codec"),
        ("zstd,zst", "[1]='zst': must be one of 'none'"),
        ("logs:lz4|zst", "['logs'][1]='zst': must be one of 'none'"),
        ("logs:", "['logs']='': must be one of"),
        (":zstd", "Invalid topic=''"),
        ("a:b:zstd", "['a']='b:zstd'"),
        ("logs:zst", "Did you mean 'zstd'?"),
    ],
)
def test_a_text_with_wrong_codecs_by_topic_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_properties({"bootstrap.servers": "localhost", "compression.type": text})

    assert "compression_type" in str(caught.value)
    assert reason in str(caught.value)


# --- Codecs in order of preference


@pytest.mark.parametrize(
    ("given", "text", "shown"),
    [
        (["zstd", "lz4"], "zstd,lz4", ("zstd", "lz4")),
        (("ZSTD", " none"), " zstd , NONE,", ("zstd", "none")),
        ({"logs": ["zstd", "gzip"], "*": "lz4"}, "logs:zstd|gzip,*:lz4", {"logs": ("zstd", "gzip"), "*": "lz4"}),
        (
            {"logs": ["lz4"], "*": ("lz4", "snappy")},
            "logs:lz4,*: lz4 | snappy",
            {"logs": "lz4", "*": ("lz4", "snappy")},
        ),
    ],
    ids=str,
)
def test_codecs_by_preference_can_be_given_in_every_form(given: Any, text: str, shown: object) -> None:
    expected = config(compression_type=given)

    assert expected.compression_type == shown
    assert repr(expected) == f"ProducerConfig('localhost:9092', compression_type={shown!r})"
    assert ProducerConfig.from_properties({"bootstrap.servers": "localhost", "compression.type": text}) == expected
    assert ProducerConfig.from_url(f"kafka://localhost?compression_type={text}") == expected
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "localhost", "KAFKA_COMPRESSION_TYPE": str(expected.compression_type)}
    assert ProducerConfig.from_env(environ=environ) == expected
    copy = pickle.loads(pickle.dumps(expected))
    assert (copy, hash(copy)) == (expected, hash(expected))
    assert str(copy.compression_type) == str(expected.compression_type)


def test_codecs_by_preference_of_a_topic() -> None:
    made = config(compression_type={"logs": ["zstd", "gzip"], "*": "lz4"})

    assert [made.compressions_of(topic) for topic in ("logs", "orders")] == [("zstd", "gzip"), ("lz4",)]
    assert made.compression_of("logs") == "zstd"
    assert config(compression_type=["zstd", "gzip"]).compressions_of("logs") == ("zstd", "gzip")
    assert config(compression_type={"logs": ["zstd", "gzip"]}).compressions_of("orders") == ("none",)


def test_a_list_of_one_codec_equals_its_name() -> None:
    assert config(compression_type=["zstd"]) == config(compression_type="zstd")
    assert config(compression_type=["zstd"]).compression_type == "zstd"
    assert config(compression_type={"a": ["zstd"]}) == config(compression_type={"a": "zstd"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "Invalid compression_type=[]: names no codec. Name at least one, or leave the option out."),
        (["zstd", "lz4", "zstd"], "=['zstd', 'lz4', 'zstd']: names 'zstd' twice. Name every codec once."),
        (["zstd", "zst"], "compression_type[1]='zst': must be one of 'none', 'gzip', 'snappy', 'lz4', 'zstd'."),
        (["zstd", ["lz4"]], "compression_type[1] of type list: must be one of"),
        (["none", "zstd"], "'zstd' would never be used, because every broker accepts 'none'"),
        (
            ["zstd", "gzip", "lz4"],
            "'lz4' would never be used, because every broker accepts 'gzip', and it needs no package.",
        ),
        ({"logs": []}, "compression_type['logs']=[]: names no codec"),
        ({"logs": ["none", "zstd"]}, "['logs']=['none', 'zstd']: 'zstd' would never be used"),
    ],
    ids=str,
)
def test_wrong_codecs_by_preference_are_refused(given: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(compression_type=given)

    assert reason in str(caught.value)


def test_a_level_applies_to_every_codec_of_a_list() -> None:
    assert config(compression_type=["zstd", "lz4"], compression_level=3).compression_level == 3
    with pytest.raises(ConfigError, match="not a level of lz4"):
        config(compression_type=["zstd", "lz4"], compression_level=20)
    levels = {"bootstrap.servers": "h", "compression.zstd.level": "5"}
    with pytest.raises(ConfigError, match="would also be the level of lz4"):
        ProducerConfig.from_properties(levels | {"compression.type": "zstd,lz4"})
    assert ProducerConfig.from_properties(levels | {"compression.type": ["zstd", "none"]}).compression_level == 5
    with pytest.raises(ConfigError, match="would also be the level of gzip and lz4"):
        ProducerConfig.from_properties(levels | {"compression.type": "a:zstd|gzip,*:lz4"})


def test_codecs_by_topic_are_frozen_and_travel() -> None:
    given = dict(BY_TOPIC)
    made = config(compression_type=given)
    frozen = cast("CompressionByTopic", made.compression_type)
    given["logs"] = "gzip"

    assert dict(frozen) == BY_TOPIC
    assert repr(made) == f"ProducerConfig('localhost:9092', compression_type={BY_TOPIC!r})"
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(config(compression_type=dict(reversed(BY_TOPIC.items()))))
    assert made == config(compression_type=dict(reversed(BY_TOPIC.items())))
    assert made.replace(linger_ms=9).compression_type == frozen
    with pytest.raises(AttributeError, match="immutable"):
        setattr(frozen, "_codecs", {})  # noqa: B010 - type checkers would refuse it


def test_a_level_applies_to_every_topic_that_is_compressed() -> None:
    assert config(compression_type={"a": "zstd", "b": "lz4", "c": "none"}, compression_level=3).compression_level == 3

    levels = {"bootstrap.servers": "h", "compression.zstd.level": "5", "compression.gzip.level": "9"}
    one = ProducerConfig.from_properties(levels | {"compression.type": "a:zstd,b:none"})
    assert one.compression_level == 5
    with pytest.raises(ConfigError, match="would also be the level of lz4, because compression_level applies to every"):
        ProducerConfig.from_properties(levels | {"compression.type": "a:zstd,*:lz4"})


# --- Java's properties


def test_java_properties_become_options() -> None:
    read = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "acks": "all",
            "linger.ms": " 20 ",
            "batch.size": 1000,
            "enable.idempotence": "TRUE",
            "compression.type": "zstd",
            "compression.zstd.level": "5",
            "compression.lz4.level": "17",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "interceptor.classes": "",
            "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
            "close.timeout.ms": "9",
            "max_block_ms": "8",
        }
    )

    assert read == ProducerConfig(
        "a:1,b:2",
        linger_ms=20,
        batch_size=1000,
        compression_type="zstd",
        compression_level=5,
        key_serializer=StringSerializer(),
        partitioner="round_robin",
        close_timeout_ms=9,
        max_block_ms=8,
    )


def test_the_java_keys_of_tls_become_ours() -> None:
    read = ProducerConfig.from_properties(
        """
        bootstrap.servers=h
        security.protocol=SASL_SSL
        ssl.truststore.type=PEM
        ssl.truststore.location=/etc/ca.pem
        ssl.keystore.type=PEM
        ssl.keystore.location=/etc/client.pem
        ssl.key.password=pw
        ssl.endpoint.identification.algorithm=https
        ssl.enabled.protocols=TLSv1.3
        ssl.protocol=TLSv1.3
        sasl.mechanism=OAUTHBEARER
        sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
        sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
        sasl.oauthbearer.token.endpoint.url=https://idp/token
        sasl.oauthbearer.client.credentials.client.id=me
        sasl.oauthbearer.client.credentials.client.secret=s
        """,
        sasl_oauth_token_provider=str,
    )

    assert (read.ssl_cafile, read.ssl_certfile, read.ssl_min_version) == ("/etc/ca.pem", "/etc/client.pem", "TLSv1.3")
    assert read.sasl_oauth_token_provider is str


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("lingr.ms=5", "Did you mean 'linger_ms'"),
        ("linger.ms=5ms", "linger.ms.*whole number of milliseconds"),
        ("enable.idempotence=maybe", "true or false"),
        ("buffer.memory.allocation.strategy=full", "no counterpart here"),
        ("config.providers=file", "fill in values"),
        ("ssl.engine.factory.class=a.B", "ssl_context"),
        ("interceptor.classes=a.B", "pass interceptors"),
        ("metric.reporters=a.B", "pass metric_reporters"),
        ("partitioner.class=a.B", "round_robin"),
        ("value.serializer=io.confluent.kafka.serializers.KafkaAvroSerializer", "StringSerializer"),
        ("ssl.truststore.location=/x.jks", "type JKS.*only PEM"),
        ("ssl.keystore.type=PKCS12", "only PEM"),
        ("ssl.protocol=TLSv1.2", "ssl_context"),
        ("sasl.login.callback.handler.class=a.B", "sasl_oauth_token_provider"),
        ("sasl.client.callback.handler.class=a.B", "sasl_username"),
        ("sasl.login.class=a.B", "sasl_username"),
        ("message.timeout.ms=5", "delivery_timeout_ms"),
        ("group.id=g", "no group"),
        (
            "sasl.oauthbearer.token.endpoint.url=file:///etc/shadow",
            "a configuration cannot cause a URL to be requested",
        ),
        ("ssl.endpoint.identification.algorithm=", "must always match its host"),
    ],
)
def test_the_error_for_an_unusable_java_property_explains_the_alternative(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ProducerConfig.from_properties(f"bootstrap.servers=h\n{line}")


def test_keywords_win_over_properties_which_are_then_not_looked_at() -> None:
    context = ssl.create_default_context()

    read = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "::nonsense::",
            "linger.ms": "nonsense",
            "interceptor.classes": "a.B",
            "sasl.jaas.config": "x=y",
            "ssl.truststore.location": "/x.jks",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
        },
        bootstrap_servers="other",
        linger_ms=1,
        interceptors=[],
        sasl_username="u",
        sasl_password="p",
        ssl_context=context,
    )

    assert read.bootstrap_servers == ("other:9092",)
    assert read.linger_ms == 1
    assert read.ssl_context is context


def test_a_keyword_for_the_codec_decides_which_level_counts() -> None:
    levels = {"bootstrap.servers": "h", "compression.zstd.level": "5", "compression.lz4.level": "9"}

    assert ProducerConfig.from_properties(levels, compression_type="zstd").compression_level == 5
    assert ProducerConfig.from_properties(levels | {"compression.type": "zstd"}).compression_level == 5
    assert (
        ProducerConfig.from_properties(levels | {"compression.type": "zstd"}, compression_type="gzip").compression_level
        is None
    )
    assert ProducerConfig.from_url("kafka://h?compression.zstd.level=5", compression_type="zstd").compression_level == 5


def test_a_java_key_with_none_was_not_given() -> None:
    read = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "h",
            "security.protocol": "SSL",
            "ssl.endpoint.identification.algorithm": None,
            "ssl.keystore.location": None,
            "sasl.jaas.config": None,
            "transactional.id": None,
        }
    )

    assert read == ProducerConfig("h", security_protocol="SSL")


def test_the_java_keys_of_msk_iam_add_nothing_to_its_mechanism() -> None:
    read = ProducerConfig.from_properties(
        """
        bootstrap.servers=h
        security.protocol=SASL_SSL
        sasl.mechanism=AWS_MSK_IAM
        sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
        sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
        """
    )

    assert read == ProducerConfig("h", security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")


def properties(text: str) -> str:
    """The client id in ``text``, read as a properties file."""
    return ProducerConfig.from_properties("bootstrap.servers=h\n" + text).client_id


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("client.id=a", "a"),
        ("client.id = a", "a"),
        ("client.id:a", "a"),
        ("client.id a", "a"),
        ("client.id\t:\fa", "a"),
        ("  client.id  =  a b ", "a b"),
        ("client.id==a", "=a"),
        ("client.id", ""),
        ("# client.id=x\n! client.id=x\nclient.id=a", "a"),
        ("\n \t\nclient.id=a\r\nretries=3\rlinger.ms=1", "a"),
        ("client.id=a\\\n    b\\\r\n  c", "abc"),
        ("client.id=a\\\n# b", "a# b"),
        ("client.id=a\\\\\nretries=3", "a\\"),
        ("# comment\\\nclient.id=a", "a"),
        ("client.id=\\u0061\\u00E9\\ud83d\\ude00", "aé😀"),
        ("client.id=a\\tb\\:\\=\\#\\q\\\\", "a\tb:=#q\\"),
        ("client\\.id=a", "a"),
        ("client.id=a\nclient.id=b", "b"),
        ("client.id=a\\", "a"),
    ],
)
def test_properties_text_is_read_as_java_reads_it(text: str, value: str) -> None:
    assert properties(text) == value


def test_a_properties_file_is_read_as_utf_8_and_otherwise_as_java_does(tmp_path: Path) -> None:
    text = "bootstrap.servers=h\nclient.id=é\n"
    (tmp_path / "utf8.properties").write_text(text, encoding="utf-8")
    (tmp_path / "latin.properties").write_text(text, encoding="iso-8859-1")

    assert ProducerConfig.from_properties(tmp_path / "utf8.properties").client_id == "é"
    assert ProducerConfig.from_properties(str(tmp_path / "latin.properties")).client_id == "é"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        ProducerConfig.from_properties(tmp_path / "missing.properties")
    with pytest.raises(ConfigError, match="null"):
        ProducerConfig.from_properties("a\0b")


def test_the_byte_order_mark_of_a_properties_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "windows.properties").write_text("bootstrap.servers=h", encoding="utf-8-sig")

    assert ProducerConfig.from_properties(tmp_path / "windows.properties").bootstrap_servers == ("h:9092",)


def test_a_malformed_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match="Line 3"):
        properties("# c\nclient.id=\\u12")


def test_two_keys_for_one_option_must_agree() -> None:
    with pytest.raises(ConfigError, match="linger_ms"):
        ProducerConfig.from_properties({"bootstrap.servers": "h", "linger.ms": "1", "linger_ms": "2"})


# --- URLs


def test_a_url_holds_servers_options_and_credentials() -> None:
    read = ProducerConfig.from_url(
        "kafka+sasl-ssl://al%40ice:p%2Fw+%3A@h1:9093,[::1]/?sasl_mechanism=PLAIN&linger.ms=7&client_id=a%20b+c",
        acks="all",
    )

    assert read.bootstrap_addresses == (("h1", 9093), ("::1", 9092))
    assert (read.sasl_username, read.sasl_password) == ("al@ice", Secret("p/w+:"))
    assert (read.linger_ms, read.client_id, read.security_protocol) == (7, "a b+c", "SASL_SSL")


@pytest.mark.parametrize(
    ("scheme", "protocol"), [("kafka", "PLAINTEXT"), ("kafka+plaintext", "PLAINTEXT"), ("kafka+ssl", "SSL")]
)
def test_the_scheme_of_a_url_sets_the_security_protocol(scheme: str, protocol: str) -> None:
    assert ProducerConfig.from_url(f"{scheme}://h").security_protocol == protocol


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("localhost:9092", "kafka://"),
        ("http://h", "kafka://"),
        ("kafka://", "kafka://"),
        ("kafka:///?acks=all", "host:port"),
        ("kafka://h/orders", "topic belongs to send"),
        ("kafka://h#x", "fragment"),
        ("kafka://h?linger_ms=1#x", "fragment"),
        ("kafka://h?linger_ms", "name=value"),
        ("kafka://h?linger_ms=1&linger_ms=2", "twice"),
        ("kafka://h?lingerms=1", "Did you mean 'linger_ms'"),
        ("kafka://h?linger_ms=x", "whole number"),
        ("kafka+ssl://h?security_protocol=PLAINTEXT", "sets security_protocol twice"),
        ("kafka://h?bootstrap_servers=x", "sets bootstrap_servers twice"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        ProducerConfig.from_url(url)


def test_a_plain_kafka_url_leaves_the_security_protocol_to_an_option() -> None:
    assert ProducerConfig.from_url("kafka://h?security_protocol=SSL").security_protocol == "SSL"


# --- The environment

#: What stands in the environment of Kafka's own programs, of Docker images and of Kubernetes services.
OTHERS = """
HOME OPTS HEAP_OPTS JVM_PERFORMANCE_OPTS GC_LOG_OPTS LOG4J_OPTS LOG4J_CMD_OPTS JMX_OPTS JMX_PORT DEBUG
CLASSPATH VERSION BROKER_ID NODE_ID PROCESS_ROLES ADVERTISED_LISTENERS LISTENERS LISTENER_SECURITY_PROTOCOL_MAP
ZOOKEEPER_CONNECT INTER_BROKER_LISTENER_NAME CONTROLLER_LISTENER_NAMES CONTROLLER_QUORUM_VOTERS LOG_DIRS
CLUSTER_ID NUM_PARTITIONS TRANSACTION_STATE_LOG_MIN_ISR TRANSACTION_STATE_LOG_REPLICATION_FACTOR
OFFSETS_TOPIC_REPLICATION_FACTOR GROUP_INITIAL_REBALANCE_DELAY_MS AUTO_CREATE_TOPICS_ENABLE MESSAGE_MAX_BYTES
REPLICA_FETCH_MAX_BYTES LOG_RETENTION_HOURS MIN_INSYNC_REPLICAS SASL_ENABLED_MECHANISMS
SASL_MECHANISM_INTER_BROKER_PROTOCOL PORT PORT_9092_TCP SERVICE_HOST SERVICE_PORT TOPIC TOPICS GROUP_ID
AUTO_OFFSET_RESET CONSUMER_GROUP SCHEMA_REGISTRY_URL REST_URL CONNECT_URL METRIC_REPORTERS
SOCKET_REQUEST_MAX_BYTES LOG_CLEANER_ENABLE DELETE_TOPIC_ENABLE CONFLUENT_SUPPORT_METRICS_ENABLE KRAFT_MODE
""".split()  # noqa: SIM905 - shorter than a list


def test_the_environment_is_read_and_other_programs_variables_are_ignored() -> None:
    environ = {f"KAFKA_{name}": "x" for name in OTHERS} | {
        "KAFKA_BOOTSTRAP_SERVERS": "a,b",
        "KAFKA_LINGER_MS": "8",
        "KAFKA_ENABLE_METRICS_PUSH": "false",
        "KAFKA_CLIENT_RACK": "",
        "LINGER_MS": "9",
    }

    read = ProducerConfig.from_env(environ=environ, max_block_ms=3)

    assert read == ProducerConfig("a,b", linger_ms=8, enable_metrics_push=False, max_block_ms=3)


@pytest.mark.parametrize(
    ("variable", "right"),
    [
        ("LINGERMS", "KAFKA_LINGER_MS"),
        ("BOOTSTRAP_SERVER", "KAFKA_BOOTSTRAP_SERVERS"),
        ("BROKERS", "KAFKA_BOOTSTRAP_SERVERS"),
        ("SASL_PLAIN_PASSWORD", "KAFKA_SASL_PASSWORD"),
        ("MAX_BATCH_SIZE", "KAFKA_BATCH_SIZE"),
        ("SSL_TRUSTSTORE_LOCATION", "KAFKA_SSL_CAFILE"),
        ("PARTITIONER_CLASS", "KAFKA_PARTITIONER"),
    ],
)
def test_a_variable_that_is_nearly_an_option_is_refused(variable: str, right: str) -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "h", f"KAFKA_{variable}": "1"}

    with pytest.raises(ConfigError, match=f"KAFKA_{variable} .*{right}"):
        ProducerConfig.from_env(environ=environ)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_LINGER_MS \(linger_ms\)='soon'"):
        ProducerConfig.from_env(environ={"KAFKA_BOOTSTRAP_SERVERS": "h", "KAFKA_LINGER_MS": "soon"})


def test_servers_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="APP_BOOTSTRAP_SERVERS is not set"):
        ProducerConfig.from_env("APP_", {})
    assert ProducerConfig.from_env("APP_", {"APP_LINGER_MS": "1"}, bootstrap_servers="h").linger_ms == 1
    with pytest.raises(ConfigError, match="bootstrap_servers is empty"):
        ProducerConfig.from_properties({"linger.ms": "1"})


SEVERAL = {
    "keywords": lambda: ProducerConfig("h:1", linger_ms=-1, acks="two", max_batch_size=5),  # type: ignore[call-arg, arg-type]
    "properties": lambda: ProducerConfig.from_properties(
        {"bootstrap.servers": "h:1", "linger.ms": "-1", "acks": "two", "max.batch.size": "5"}
    ),
    "url": lambda: ProducerConfig.from_url("kafka://h:1/?linger_ms=-1&acks=two&max_batch_size=5"),
    "environment": lambda: ProducerConfig.from_env(
        environ={
            "KAFKA_BOOTSTRAP_SERVERS": "h:1",
            "KAFKA_LINGER_MS": "-1",
            "KAFKA_ACKS": "two",
            "KAFKA_MAX_BATCH_SIZE": "5",
        }
    ),
    "properties and a keyword": lambda: ProducerConfig.from_properties(
        {"bootstrap.servers": "h:1", "max.batch.size": "5", "linger.ms": "-1"},
        acks="two",  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("way", SEVERAL.values(), ids=SEVERAL)
def test_all_wrong_options_are_reported_at_once(way: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        way()
    first, *mistakes = str(caught.value).split("\n- ")
    assert first == "The configuration has 3 mistakes:"
    for said in ("linger", "acks", "batch_size"):
        assert sum(said in mistake.lower() for mistake in mistakes) == 1


def test_all_contradictions_are_reported_at_once() -> None:
    sentences = refusal(
        acks=1, retries=0, transactional_id="t", compression_level=3, linger_ms=9, delivery_timeout_ms=10
    )
    assert sentences.startswith("The configuration has 3 mistakes:\n- delivery_timeout_ms=10 leaves no time")
    assert "acks=1 and retries=0 rule out idempotence" in sentences
    assert "compression_level=3 has no meaning" in sentences


def test_an_invalid_option_is_not_reported_as_missing_or_contradictory() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_properties({"bootstrap.servers": "http://h:1", "acks": "1", "enable.idempotence": "yes!"})
    assert str(caught.value).count("\n- ") == 2
    assert "empty" not in str(caught.value)
    assert "rules out" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_env(environ={"KAFKA_BOOTSTRAP_SERVERS": "http://h:1"})
    assert "is not set" not in str(caught.value)
