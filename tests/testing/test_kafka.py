from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from aioproducer.record._murmur2 import murmur2, partition_for_key
from aioproducer.record.reader import read_batches
from aioproducer.testing.kafka import CONTROLLER_ID, KafkaCluster, KafkaStartError
from aioproducer.testing.kafka.formatted import FormattedDirectory
from aioproducer.testing.kafka.jars import (
    DEFAULT_KAFKA_VERSION,
    JARS_VARIABLE,
    OLDER_KAFKA_VERSION,
    KafkaJars,
    KafkaUnavailable,
)
from aioproducer.testing.kafka.java_tools import JavaToolError, JavaTools, RecordDigest
from aioproducer.testing.kafka.process_guard import ProcessGuard
from aioproducer.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aioproducer.testing.kafka import Kafka
    from aioproducer.testing.plugin import KafkaFactory, TopicFactory

pytest_plugins = ["pytester"]

real_kafka = [pytest.mark.slow, pytest.mark.timeout(300)]

HEADERS: list[tuple[str, bytes | None]] = [("binary", b"\xff\x00\n"), ("null", None), ("binary", b"again")]
VALUES: Sequence[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"\x00\xff\r\n" * 10),
    (b"", None),
    (b"\xfe", b""),
]


def produce(
    kafka: Kafka,
    topic: str,
    values: Sequence[tuple[bytes | None, bytes | None]] = VALUES,
    options: Mapping[str, str] | None = None,
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, **(options or {})})
    for number, (key, value) in enumerate(values):
        producer.produce(topic, key=key, value=value, headers=list(HEADERS), partition=0, timestamp=1000 + number)
    assert producer.flush(60) == 0


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH on which there is only what the test puts there, and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    return tmp_path


def fake_java(directory: Path, version: str) -> None:
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("checkpoint", ["bootstrap.checkpoint", "__cluster_metadata-0/0-0.checkpoint"])
def test_a_data_directory_is_formatted_like_another_one_with_its_own_ids(tmp_path: Path, checkpoint: str) -> None:
    original = "#\nnode.id=100\ndirectory.id=ZHjs9jxEYkPALHHomkikfg\nversion=1\ncluster.id=YWlvcHJvZHVjZXItdGVzdA\n"
    first = tmp_path / "first"
    (first / checkpoint).parent.mkdir(parents=True)
    (first / "meta.properties").write_text(original)
    (first / checkpoint).write_bytes(b"\x00\xff")
    formatted = FormattedDirectory.read(first)

    written: list[str] = []
    for number in range(200):  # one in 64 random ids begins with a dash
        formatted.write(tmp_path / f"{number}", number)
        assert (tmp_path / f"{number}" / checkpoint).read_bytes() == b"\x00\xff"
        written.append((tmp_path / f"{number}" / "meta.properties").read_text())

    ids = [re.findall(r"(?m)^directory\.id=(?!-)([\w-]{22})$", text) for text in written]
    assert len({found for (found,) in ids}) == 200
    assert written[7] == original.replace("=100", "=7").replace("ZHjs9jxEYkPALHHomkikfg", ids[7][0])


def test_without_java_kafka_is_unavailable_and_the_error_names_the_package(empty_path: Path) -> None:
    with pytest.raises(KafkaUnavailable, match=r"no `java` in PATH.*openjdk-17-jdk-headless"):
        KafkaJars.get()


def test_a_java_that_is_too_old_is_named_with_its_version(empty_path: Path) -> None:
    fake_java(empty_path, "11.0.2")

    with pytest.raises(KafkaUnavailable, match=r"needs Java 17 or newer, but .* is Java 11\.0\.2"):
        KafkaJars.get()


def test_without_maven_the_error_names_both_ways_to_get_the_jars(empty_path: Path) -> None:
    fake_java(empty_path, "21.0.1")

    with pytest.raises(KafkaUnavailable, match=rf"no `mvn`.*apt-get install maven.*{JARS_VARIABLE}"):
        KafkaJars.get()


def test_a_maven_that_fails_is_quoted_and_leaves_no_half_fetched_jars(empty_path: Path) -> None:
    fake_java(empty_path, "21.0.1")
    maven = empty_path / "mvn"
    maven.write_text("#!/bin/sh\necho 'Unknown host repo.example'; exit 1\n")
    maven.chmod(0o755)

    with pytest.raises(KafkaUnavailable, match=r"exit code 1.*Unknown host repo\.example"):
        KafkaJars.get()

    assert [path.name for path in (empty_path / "cache" / "aioproducer").iterdir()] == ["fetch.lock"]


def test_jars_of_another_version_are_refused(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(empty_path, "21.0.1")
    (empty_path / "kafka-clients-2.8.0.jar").touch()
    monkeypatch.setenv(JARS_VARIABLE, str(empty_path))

    with pytest.raises(KafkaUnavailable, match=r"has no kafka-clients-4\.3\.1\.jar"):
        KafkaJars.get("4.3.1")


def test_jars_that_are_given_are_used_as_they_are(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(empty_path, "21.0.1")
    for name in ("kafka-clients-4.3.1.jar", "a.jar", "README"):
        (empty_path / name).touch()
    monkeypatch.setenv(JARS_VARIABLE, str(empty_path))

    jars = KafkaJars.get("4.3.1")

    assert jars.classpath == f"{empty_path}/a.jar:{empty_path}/kafka-clients-4.3.1.jar"


def test_guarded_processes_die_with_the_process_that_started_them_even_when_they_are_stopped(tmp_path: Path) -> None:
    guarded = tmp_path / "data"
    guarded.mkdir()
    read_end, write_end = os.pipe()
    script = textwrap.dedent(f"""
        import os, pathlib, signal, subprocess
        from aioproducer.testing.kafka.process_guard import ProcessGuard
        guard = ProcessGuard(pathlib.Path({str(guarded)!r}))
        sleeper = subprocess.Popen(["sleep", "60"], process_group=guard.group, pass_fds=[{write_end}])
        sleeper.send_signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGKILL)
    """)

    subprocess.run([sys.executable, "-c", script], pass_fds=[write_end], check=False)

    os.close(write_end)
    assert os.read(read_end, 1) == b"", "the pipe ends when the last process that has it is gone"
    os.close(read_end)


def test_killing_a_guard_kills_its_group(tmp_path: Path) -> None:
    guard = ProcessGuard(tmp_path)
    sleeper = subprocess.Popen(["sleep", "60"], process_group=guard.group)

    guard.kill()

    assert sleeper.wait() == -signal.SIGKILL


@pytest.fixture
def plugin_only(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytest within the test that has no plugin but ours, whether or not ours is installed as one."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "aioproducer.testing.plugin")
    return pytester


def test_a_test_that_needs_kafka_is_skipped_where_java_is_missing(
    plugin_only: pytest.Pytester, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    plugin_only.makepyfile("def test_kafka(kafka): pass")

    result = plugin_only.runpytest_inprocess("-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines("*there is no `java` in PATH*")


def test_a_test_that_needs_kafka_fails_in_ci_where_java_is_missing(
    plugin_only: pytest.Pytester, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    plugin_only.makepyfile("def test_kafka(kafka): pass")

    result = plugin_only.runpytest_inprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*there is no `java` in PATH*")


def test_a_kafka_that_runs_elsewhere_is_used_as_it_is(plugin_only: pytest.Pytester, empty_path: Path) -> None:
    plugin_only.makepyfile("def test_kafka(kafka): assert kafka.bootstrap_servers == 'kafka.example:9092'")

    result = plugin_only.runpytest_inprocess("--kafka-bootstrap", "kafka.example:9092")

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("version", [DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION])
class TestEachVersion:
    pytestmark = real_kafka

    def test_java_reads_back_each_record_as_it_was_written(self, kafka_factory: KafkaFactory, version: str) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("read-back", partitions=2)
        produce(kafka, "read-back")

        records = list(JavaTools(KafkaJars.get(version)).read_back(kafka.bootstrap_servers, "read-back"))

        assert [(record.key, record.value) for record in records] == VALUES
        assert [record.offset for record in records] == [0, 1, 2, 3]
        assert [record.timestamp_ms for record in records] == [1000, 1001, 1002, 1003]
        assert {record.timestamp_type for record in records} == {TimestampType.CREATE_TIME}
        assert {record.partition for record in records} == {0}
        assert all(list(record.headers) == HEADERS for record in records)

    def test_reading_back_starts_and_ends_where_it_is_reported(self, kafka_factory: KafkaFactory, version: str) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("part")
        produce(kafka, "part")

        records = JavaTools(KafkaJars.get(version)).read_back(
            kafka.bootstrap_servers, "part", start={0: 1}, max_records=2
        )

        assert [record.offset for record in records] == [1, 2]

    def test_digests_are_equal_for_equal_records_in_equal_order(
        self, kafka_factory: KafkaFactory, version: str
    ) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("digest", partitions=3)
        produce(kafka, "digest")
        expected, reordered = RecordDigest(), RecordDigest()
        for key, value in VALUES:
            expected.add(key, value, HEADERS)
        for key, value in reversed(VALUES):
            reordered.add(key, value, HEADERS)

        digests = JavaTools(KafkaJars.get(version)).digest(kafka.bootstrap_servers, "digest")

        assert digests.keys() == {0}
        assert (digests[0].count, digests[0].first_offset, digests[0].last_offset) == (4, 0, 3)
        assert digests[0].offsets_ascend
        assert digests[0].sha256 == expected.hexdigest() != reordered.hexdigest()

    def test_the_log_checker_sees_every_batch(self, kafka_factory: KafkaFactory, version: str) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("dump")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            produce(kafka, "dump", [(b"key", b"value" * 100)], {"compression.type": codec})

        batches = JavaTools(KafkaJars.get(version)).dump_log_segments(kafka.data_directory(1) / "dump-0")

        assert [batch.codec for batch in batches] == ["none", "gzip", "snappy", "lz4", "zstd"]
        assert [batch.base_offset for batch in batches] == [0, 1, 2, 3, 4]
        assert all(batch.is_valid and batch.count == 1 for batch in batches)

    def test_raw_batches_are_fetched_with_the_offsets_of_the_log(
        self, kafka_factory: KafkaFactory, version: str
    ) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("raw", partitions=2)
        produce(kafka, "raw")
        produce(kafka, "raw", options={"compression.type": "gzip"})

        raw = kafka.admin.fetch_all("raw")

        batches = [batch for data in raw[0] for batch in read_batches(data)]
        assert [(record.key, record.value) for batch in batches for record in batch.records] == [*VALUES, *VALUES]
        assert raw[1] == []
        assert kafka.admin.list_offsets("raw") == {0: (0, 8), 1: (0, 0)}

    def test_a_killed_broker_comes_back_with_its_data_and_its_address(
        self, kafka_factory: KafkaFactory, version: str
    ) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("killed")
        produce(kafka, "killed")
        address = kafka.bootstrap_servers

        kafka.kill(1)
        kafka.start(1)
        produce(kafka, "killed")

        records = JavaTools(KafkaJars.get(version)).read_back(address, "killed")
        assert [(record.key, record.value) for record in records] == [*VALUES, *VALUES]

    def test_a_topic_that_was_deleted_can_be_created_again(self, kafka_factory: KafkaFactory, version: str) -> None:
        kafka = kafka_factory(version)
        kafka.create_topic("again", config={"cleanup.policy": "compact"})

        kafka.delete_topic("again")
        kafka.create_topic("again", partitions=3)

        assert [kafka.leader_of("again", partition) for partition in range(3)] == [1, 1, 1]


class TestOneBroker:
    pytestmark = real_kafka

    def test_topics_of_the_fixture_are_new_and_named_after_the_test(
        self, kafka: Kafka, kafka_topic: TopicFactory
    ) -> None:
        first, second = kafka_topic(), kafka_topic(partitions=4)

        assert first != second
        assert first.startswith("test_topics_of_the_fixture_are_new")
        assert kafka.admin.list_offsets(second) == dict.fromkeys(range(4), (0, 0))

    def test_a_paused_broker_answers_again_when_it_is_resumed(self, kafka_factory: KafkaFactory) -> None:
        kafka = kafka_factory()
        kafka.create_topic("paused")

        kafka.pause(1)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        producer.produce("paused", b"value")
        unsent = producer.flush(0.5)
        kafka.resume(1)

        assert unsent == 1
        assert producer.flush(60) == 0

    def test_java_and_we_give_every_key_the_same_partition(self, kafka_jars: KafkaJars) -> None:
        keys = [bytes(range(size)) for size in range(40)] + [b"\xff" * size for size in range(1, 9)]

        found = JavaTools(kafka_jars).hash_keys(keys, 12)

        assert [key_hash.murmur2 for key_hash in found] == [murmur2(key) for key in keys]
        assert [key_hash.partition for key_hash in found] == [partition_for_key(key, 12) for key in keys]

    def test_the_error_of_a_java_tool_contains_its_output(self, kafka: Kafka, kafka_jars: KafkaJars) -> None:
        properties = {"isolation.level": "read_nothing"}

        with pytest.raises(JavaToolError, match=r"read_nothing"):
            list(JavaTools(kafka_jars).read_back(kafka.bootstrap_servers, "any", properties=properties))

    def test_reading_back_may_be_left_before_its_end(
        self, kafka: Kafka, kafka_jars: KafkaJars, kafka_topic: TopicFactory
    ) -> None:
        topic = kafka_topic()
        produce(kafka, topic)

        records = JavaTools(kafka_jars).read_back(kafka.bootstrap_servers, topic)

        assert next(records).offset == 0
        records.close()


@pytest.fixture(scope="session")
def kafka_jars(kafka_factory: KafkaFactory) -> KafkaJars:
    """The default jars; skips where Kafka cannot be run."""
    return KafkaJars.get(kafka_factory().version)


class TestThreeBrokers:
    pytestmark = real_kafka

    def test_another_broker_leads_when_the_leader_is_killed(self, kafka_factory: KafkaFactory) -> None:
        kafka = kafka_factory(brokers=3)
        kafka.create_topic("replicated", partitions=3, replication_factor=3)
        killed = kafka.leader_of("replicated", 0)

        kafka.kill(killed)
        produce(kafka, "replicated", options={"enable.idempotence": "true"})
        kafka.start(killed)

        assert kafka.leader_of("replicated", 0) != killed
        records = JavaTools(KafkaJars.get(kafka.version)).read_back(kafka.bootstrap_servers, "replicated")
        assert [(record.key, record.value) for record in records] == VALUES

    def test_a_broker_that_stops_cleanly_hands_its_partitions_over_first(self, kafka_factory: KafkaFactory) -> None:
        kafka = kafka_factory(brokers=3)
        kafka.create_topic("handed-over", partitions=3, replication_factor=3)

        kafka.stop(2)
        leaders = {kafka.leader_of("handed-over", partition) for partition in range(3)}
        kafka.start(2)

        assert leaders <= {1, 3}

    def test_brokers_serve_while_the_controller_is_away(self, kafka_factory: KafkaFactory) -> None:
        kafka = kafka_factory(brokers=3)
        kafka.create_topic("headless", replication_factor=3)

        kafka.kill(CONTROLLER_ID)
        produce(kafka, "headless")
        kafka.start(CONTROLLER_ID)

        kafka.create_topic("after", replication_factor=3)
        assert kafka.admin.list_offsets("headless") == {0: (0, 4)}


class TestLife:
    pytestmark = real_kafka

    async def test_a_cluster_in_async_code_leaves_no_process_and_no_file(self, kafka_jars: KafkaJars) -> None:
        async with KafkaCluster(kafka_jars.version, features={"transaction.version": 1}) as kafka:
            pids = [kafka.pid(node) for node in (1, CONTROLLER_ID)]
            directory = kafka.data_directory(1).parent
            level = kafka.admin.finalized_feature("transaction.version")

        assert level == 1
        assert None not in pids
        assert not [pid for pid in pids if pid is not None and is_alive(pid)]
        assert not directory.exists()

    def test_a_test_run_that_is_killed_leaves_no_process(self, kafka_jars: KafkaJars) -> None:
        script = textwrap.dedent(f"""
            import sys
            from aioproducer.testing.kafka import CONTROLLER_ID, KafkaCluster, KafkaStartError
            kafka = KafkaCluster({kafka_jars.version!r}).open()
            print(kafka.pid(1), kafka.pid(CONTROLLER_ID), flush=True)
            sys.stdin.read()
        """)
        run = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with run:
            assert run.stdout is not None
            handles = [os.pidfd_open(int(pid)) for pid in run.stdout.readline().split()]
            run.kill()

        assert len(handles) == 2
        for handle in handles:
            assert select.select([handle], [], [], 30)[0], "a process of the killed test run is still alive"
            os.close(handle)

    def test_a_cluster_that_cannot_start_raises_the_reason_and_leaves_no_process(self, kafka_jars: KafkaJars) -> None:
        kafka = KafkaCluster(kafka_jars.version, properties={"log.retention.ms": "not a number"})

        with pytest.raises(KafkaStartError, match=r"not a number"):
            kafka.open()

    def test_a_listener_with_a_login_takes_the_users_that_were_named(self, kafka_jars: KafkaJars) -> None:
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        properties = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
        }
        login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "bob"}
        with KafkaCluster(
            kafka_jars.version,
            properties=properties,
            listeners={"SASL": "SASL_PLAINTEXT"},
            scram_users={"bob": "secret"},
        ) as kafka:
            kafka.create_topic("login")

            options = {"bootstrap.servers": kafka.bootstrap("SASL"), "sasl.password": "secret", **login}
            produce(kafka, "login", options=options)

            assert kafka.admin.list_offsets("login") == {0: (0, 4)}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
