"""Options mean what they mean to Spark's own sink for Kafka, and what is wrong is said with the way out."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from aioproducer.config import Secret
from aioproducer.errors import ConfigError
from aioproducer.spark.avro.registry import SchemaRegistry
from aioproducer.spark.options.given import OptionValue
from aioproducer.spark.options.sink import DeliveryGuarantee, MissingMarker, SinkOptions, ValueFormat
from aioproducer.spark.sink.barrier import BarrierWrite, foreach_batch

SERVERS = {"kafka.bootstrap.servers": "a:9092,b:9093"}
AVRO = {**SERVERS, "topic": "orders", "value.format": "avro"}
EXACTLY_ONCE = {**SERVERS, "delivery.guarantee": "exactly-once", "transactional.id": "q", "topic": "orders"}


def test_every_producer_option_is_passed_through_with_or_without_kafka_before_it() -> None:
    options = SinkOptions.from_spark(
        {**SERVERS, "kafka.linger.ms": "7", "compression.type": "zstd", "retry_backoff_ms": "9"}
    )

    config = options.config
    assert config.bootstrap_servers == ("a:9092", "b:9093")
    assert (config.linger_ms, config.compression_type, config.retry_backoff_ms) == (7, "zstd", 9)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({}, 262_144),
        ({"kafka.max.request.size": "100000"}, 100_000),
        ({"buffer.memory": "50000"}, 50_000),
        ({"kafka.batch.size": "16384"}, 16_384),
        ({"batch.size": "900000"}, 900_000),
    ],
)
def test_batches_are_large_by_default(given: dict[str, str], size: int) -> None:
    assert SinkOptions.from_spark({**SERVERS, **given}).config.batch_size == size


def test_the_system_sizes_the_send_buffer_by_default() -> None:
    assert SinkOptions.from_spark(SERVERS).config.send_buffer_bytes == -1
    assert SinkOptions.from_spark({**SERVERS, "kafka.send.buffer.bytes": "131072"}).config.send_buffer_bytes == 131_072


def test_at_least_once_old_records_are_retried_by_default() -> None:
    """An error would fail the task, and Spark would write all of its rows again."""
    assert SinkOptions.from_spark(SERVERS).config.producer_id_expiration_ms == -1
    given = SinkOptions.from_spark({**SERVERS, "kafka.producer.id.expiration.ms": "86400000"})
    assert given.config.producer_id_expiration_ms == 86_400_000


def test_options_added_by_spark_are_ignored() -> None:
    added = {"checkpointlocation": "/tmp/x", "queryname": "q", "path": "p"}

    assert SinkOptions.from_spark({**SERVERS, **added}) == SinkOptions.from_spark(SERVERS)


def test_the_sinks_own_options_are_read_in_any_case() -> None:
    options = SinkOptions.from_spark(
        {
            **EXACTLY_ONCE,
            "Transaction.Timeout.Ms": "5000",
            "commit.marker.topic": "markers",
            "commit.marker.missing": "trust-checkpoint",
            "value.format": "JSON",
            "max.in.flight.batches": "2",
            "headers.source": "spark",
            "job.id": "j",
        }
    )

    assert (options.guarantee, options.transactional_id) == (DeliveryGuarantee.EXACTLY_ONCE, "q")
    assert (options.topic, options.transaction_timeout_ms, options.marker_topic) == ("orders", 5000, "markers")
    assert (options.missing_marker, options.value_format) == (MissingMarker.TRUST_CHECKPOINT, ValueFormat.JSON)
    assert (options.max_in_flight_batches, options.headers, options.job_id) == (2, (("source", b"spark"),), "j")


def test_options_travel_to_the_tasks() -> None:
    options = SinkOptions.from_spark(EXACTLY_ONCE)

    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "'kafka.bootstrap.servers' is missing"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "cast the columns with DataFrame operations"),
        ({**SERVERS, "kafka.group.id": "g"}, "is a consumer option"),
        ({**SERVERS, "kafka.interceptor.classes": "x"}, "no JVM"),
        ({**SERVERS, "kafka.linger.millis": "1"}, "Options of the sink are topic"),
        ({**SERVERS, "delivery.garantee": "exactly-once"}, "Did you mean 'delivery.guarantee'?"),
        ({**SERVERS, "failondataloss": "false"}, "is an option of Spark's Kafka source"),
        ({**SERVERS, "startingOffsets": "earliest"}, "is an option of Spark's Kafka source"),
        ({**SERVERS, "delivery.guarantee": "exactly-onec"}, "Did you mean 'exactly-once'?"),
        ({**SERVERS, "report": "hdfs://nn/report"}, "not a URL"),
        ({**SERVERS, "report": ""}, "'report' is empty"),
        ({**SERVERS, "max.in.flight.batches": "0"}, "must be an integer of at least 1"),
        ({**SERVERS, "topic": " "}, "'topic' is empty"),
        ({**SERVERS, "topic": "orders, returns"}, "The option 'topic': Invalid topic='orders, returns'"),
        ({**SERVERS, "commit.marker.topic": "a/b"}, "The option 'commit.marker.topic': Invalid topic='"),
        ({**SERVERS, "on.record.error": "dead-letter:a b"}, "The option 'on.record.error': Invalid topic='"),
        ({**SERVERS, "rate.limit.records.per.second": "0.5"}, "must be an integer of at least 1"),
        ({**SERVERS, "rate.limit.tasks": "2"}, "set rate.limit.records.per.second"),
        ({**SERVERS, "rate.limit.tasks": "none"}, "must be an integer of at least 1"),
        ({**SERVERS, "transactional.id": "q"}, "'transactional.id' needs"),
        ({**SERVERS, "job.id": "q"}, "'job.id' needs"),
        ({**SERVERS, "delivery.guarantee": "exactly-once"}, "needs the option 'transactional.id'"),
        ({**SERVERS, "avro.schema": "{}"}, "'avro.schema' needs .option('value.format', 'avro')"),
        ({**SERVERS, "schema.registry.url": "http://a"}, "'schema.registry.url' needs"),
        ({**AVRO, "schema.registry.basic.auth.user.info": "u:p"}, "needs schema.registry.url, which is not set"),
        ({**AVRO, "schema.registry.url": "a:8081"}, "http://host:8081 or https://"),
        ({**SERVERS, "value.format": "avro", "schema.registry.url": "a:8081"}, "http://host:8081 or https://"),
        ({**EXACTLY_ONCE, "kafka.acks": "1", "kafka.enable.idempotence": "false"}, "needs acks=all"),
    ],
)
def test_the_error_for_a_wrong_option_explains_how_to_correct_it(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.from_spark(given)

    assert sentence in str(caught.value)


def test_the_header_option_of_sparks_own_sink_is_accepted() -> None:
    assert SinkOptions.from_spark({**SERVERS, "includeHeaders": "true"}) == SinkOptions.from_spark(SERVERS)


def test_avro_has_a_schema_and_a_registry_whose_login_is_not_shown() -> None:
    given = {"avro.schema": ' {"type":"record"} ', "schema.registry.url": "http://me:secret@Registry:8081/"}

    in_url = SinkOptions.from_spark({**AVRO, **given})
    beside = SinkOptions.from_spark(
        {**AVRO, "schema.registry.url": "http://registry:8081", "schema.registry.basic.auth.user.info": "me:secret"}
    )

    assert (in_url.value_format, in_url.avro_schema) == (ValueFormat.AVRO, '{"type":"record"}')
    assert in_url.registry == beside.registry == SchemaRegistry("http://registry:8081", "me:secret")
    assert "secret" not in f"{in_url} {in_url.registry} {beside}"
    assert SinkOptions.from_spark(AVRO).registry is None


def test_the_rate_limit_is_shared_by_the_tasks_that_run_at_once() -> None:
    given = {**SERVERS, "rate.limit.records.per.second": "1000"}

    assert SinkOptions.from_spark(SERVERS).rows_per_second is None
    assert SinkOptions.from_spark({**given, "rate.limit.tasks": "8"}).rows_per_second == 125
    with pytest.raises(ConfigError, match=r"rate\.limit\.tasks"):
        _ = SinkOptions.from_spark(given).rows_per_second


def test_rows_that_name_their_topics_need_a_topic_for_the_marker() -> None:
    given = {name: value for name, value in EXACTLY_ONCE.items() if name != "topic"}

    with pytest.raises(ConfigError, match=r"commit\.marker\.topic"):
        SinkOptions.from_spark(given).marker_partition_topic()
    assert SinkOptions.from_spark({**given, "commit.marker.topic": "m"}).marker_partition_topic() == "m"


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"kafka.linger.ms": "2", "linger.ms": "1"}, ["'kafka.linger.ms'='2'", "'linger.ms'='1'"]),
        ({"Topic": "letters", "topic": "orders"}, ["'Topic'='letters'", "'topic'='orders'"]),
        (
            {"transactional.id": "q", "kafka.transactional.id": "z"},
            ["'transactional.id'='q'", "'kafka.transactional.id'"],
        ),
        ({"report": "/tmp/a", "REPORT": "/tmp/b"}, ["'report'='/tmp/a'", "'REPORT'='/tmp/b'"]),
    ],
)
def test_an_option_that_is_given_twice_and_differently_is_refused(given: dict[str, str], reported: list[str]) -> None:
    for items in (given.items(), reversed(given.items())):
        with pytest.raises(ConfigError, match=r"given twice with different values") as caught:
            SinkOptions.from_spark({**SERVERS, **dict(items)})

        assert [each for each in reported if each not in str(caught.value)] == []


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.sasl.password": "hush1", "sasl.password": "hush2"},
        {"kafka.sasl.jaas.config": "hush1", "sasl.jaas.config": "hush2"},
        {"schema.registry.url": "http://u:hush1@a", "Schema.Registry.Url": "http://u:hush2@a"},
        {"schema.registry.basic.auth.user.info": "u:hush1", "SCHEMA.registry.basic.auth.user.info": "u:hush2"},
        {"headers.Token": "hush1", "headers.token": "hush2"},
        {"kafka.proxy": "socks5://u:hush1@a", "proxy": "socks5://u:hush2@a"},
    ],
)
def test_of_what_may_be_secret_only_the_keys_are_reported(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"given twice with different values") as caught:
        SinkOptions.from_spark({**SERVERS, **given})

    assert [each for each in given if repr(each) not in str(caught.value)] == []
    assert "hush" not in str(caught.value)


def test_an_option_may_be_given_twice_with_the_same_value() -> None:
    given = {"kafka.linger.ms": "7", "linger.ms": " 7", "headers.X": "1", "headers.x": "1"}

    options = SinkOptions.from_spark({**SERVERS, **given})

    assert (options.config.linger_ms, options.headers) == (7, (("X", b"1"),))


@pytest.mark.parametrize("own", ["topic", "value.format", "job.id", "headers.x"])
def test_an_option_of_the_sink_is_refused_with_the_kafka_prefix(own: str) -> None:
    with pytest.raises(ConfigError, match=rf"'kafka\.{own}' belongs to the sink, not to Kafka.* as {own!r}"):
        SinkOptions.from_spark({**SERVERS, f"kafka.{own}": "json"})


def test_a_guarantee_that_a_helper_does_not_give_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"=at-least-once: rows are always written exactly-once here"):
        foreach_batch({**SERVERS, "topic": "orders", "transactional.id": "q", "Delivery.Guarantee": "at-least-once"})


@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_the_options_that_the_sink_reads_may_also_be_in_our_spelling(prefix: str) -> None:
    given = {f"{prefix}transactional_id": "q", f"{prefix}transaction_timeout_ms": "30000", f"{prefix}batch_size": "900"}

    options = SinkOptions.from_spark(
        {f"{prefix}bootstrap_servers": "a", "delivery_guarantee": "exactly-once", "value_format": "json", **given}
    )

    assert (options.transactional_id, options.transaction_timeout_ms, options.config.batch_size) == ("q", 30_000, 900)
    assert (options.config.transactional_id, options.config.is_explicit("transaction_timeout_ms")) == (None, False)
    assert options.value_format is ValueFormat.JSON


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kafka.transactional_id": "q"}, "'transactional.id' needs"),
        ({"kafka.key_serializer": "org.apache.kafka.common.serialization.StringSerializer"}, "is not supported"),
        ({"group_id": "g"}, "is a consumer option"),
        ({"kafka.linger.ms": "1", "linger_ms": "2"}, "'kafka.linger.ms'='1' and 'linger_ms'='2'"),
        ({"kafka.value_format": "json"}, "without 'kafka.', as 'value.format'"),
        ({"headers_x": "1"}, "'headers_x' is not an option"),
    ],
)
def test_nothing_comes_past_the_sink_in_our_spelling(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.from_spark({**SERVERS, **given})

    assert sentence in str(caught.value)


def test_numbers_and_truths_are_read_as_spark_hands_them_over() -> None:
    options = SinkOptions.from_spark(
        {**SERVERS, "kafka.linger.ms": 7, "kafka.enable.idempotence": False, "kafka.acks": 1, "topic": None}
        | {"rate.limit.records.per.second": 10, "headers.n": True, "headers.x": 0.5}
    )

    assert (options.config.linger_ms, options.config.enable_idempotence, options.config.acks) == (7, False, 1)
    assert (options.topic, options.rate_limit) == (None, 10)
    assert options.headers == (("n", b"true"), ("x", b"0.5"))


@pytest.mark.parametrize("value", [["a:9092"], Secret("hush"), b"x"])
def test_an_option_that_is_neither_text_nor_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"'kafka.client.id' has type {type(value).__name__}; ") as caught:
        SinkOptions.from_spark({**SERVERS, "kafka.client.id": value})

    assert "hush" not in str(caught.value)


def test_a_helper_takes_options_as_spark_does() -> None:
    given: dict[str, OptionValue] = {
        **SERVERS,
        "topic": "orders",
        "transactional_id": "q",
        "job_id": 7,
        "kafka.linger_ms": 5,
    }

    write = BarrierWrite(given, is_stream=False)

    assert (write.options.transactional_id, write.options.job_id, write.options.config.linger_ms) == ("q", "7", 5)
    assert write.options.is_in_log
    assert not BarrierWrite({**given, "job_id": None}, is_stream=False).options.is_in_log
    assert not BarrierWrite({**given, "load.slice": True}, is_stream=False).options.is_in_log
    with pytest.raises(ConfigError, match=r"job\.id.* is for batch jobs"):
        BarrierWrite(given, is_stream=True)


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.security.protocol": "SSL"},
        {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
        | {"kafka.sasl.username": "u", "kafka.sasl.password": "hush"},
    ],
)
def test_tls_and_logins_are_those_of_a_producer(given: dict[str, str]) -> None:
    options = SinkOptions.from_spark({**SERVERS, **given})

    assert options.config.security_protocol == given["kafka.security.protocol"]
    assert "hush" not in repr(options)


def test_headers_and_logins_are_kept_to_the_blank() -> None:
    login = {"schema.registry.url": " http://a:8081 ", "schema.registry.basic.auth.user.info": "me: hush "}

    options = SinkOptions.from_spark({**AVRO, **login, "headers.Content-Type": " text/plain\t"})

    assert options.headers == (("Content-Type", b" text/plain\t"),)
    assert options.registry == SchemaRegistry("http://a:8081", "me: hush ")


def test_a_header_that_differs_by_a_blank_is_given_differently() -> None:
    with pytest.raises(ConfigError, match=r"given twice with different values"):
        SinkOptions.from_spark({**SERVERS, "headers.X": "1", "headers.x": "1 "})
