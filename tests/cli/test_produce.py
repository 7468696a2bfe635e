"""``aioproducer produce`` sends what kcat and the console producer send with the same flags, and reports each record."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli.main import main
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.cluster_state import TopicSpec
from aioproducer.testing.broker.log import TopicConfig

pyarrow: Any = import_module("pyarrow")

Records = Sequence[tuple[bytes | None, bytes | None]]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 1}) as running:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", running.bootstrap_servers)
        yield running


def produce(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], given: bytes = b"") -> int:
    """The exit code of a run with this standard input."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(given)
    with TextIOWrapper(os.fdopen(reading, "rb")) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        return main(["produce", *arguments])


def seen(broker: FakeBroker, topic: str = "orders", *, committed: bool = False) -> Records:
    return [(record.key, record.value) for record in broker.records(topic, committed=committed)]


@contextmanager
def started(broker: FakeBroker, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose pipes are closed at the end."""
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    with subprocess.Popen(
        [sys.executable, "-m", "aioproducer", "produce", "orders", "-b", broker.bootstrap_servers, *arguments], **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        pytest.param(["-P", "-t", "orders", "-p", "0"], b"one\n\ntwo", [(None, b"one"), (None, b"two")], id="lines"),
        pytest.param(["-t", "orders", "-z", "snappy"], b"a log line\n", [(None, b"a log line")], id="compressed"),
        pytest.param(
            ["-P", "-t", "orders", "-K:"], b"k:v:w\nv\n:x\n", [(b"k", b"v:w"), (None, b"v"), (b"", b"x")], id="K"
        ),
        pytest.param(["-P", "-t", "orders", "-K:", "-Z"], b"k:\n:x\n", [(b"k", None), (None, b"x")], id="null"),
        pytest.param(
            ["-P", "-t", "orders", "-k", "key", "-K", "\\t"], b"v\nk\tw\n", [(b"key", b"v"), (b"k", b"w")], id="k"
        ),
        pytest.param(["-P", "-t", "orders", "-D", "\\x00"], b"a\nb\0c\0", [(None, b"a\nb"), (None, b"c")], id="D"),
        pytest.param(
            ["-P", "-t", "orders", "-D", "ab"], b"1ab2aab3", [(None, b"1"), (None, b"2a"), (None, b"3")], id="DD"
        ),
        pytest.param(["-P", "-t", "orders", "-c", "2"], b"a\nb\nc\n", [(None, b"a"), (None, b"b")], id="c"),
        pytest.param(["-P", "-t", "orders", "-X", "transactional.id=my-app"], b"a\n", [(None, b"a")], id="transaction"),
        pytest.param(["-t", "orders", "-X", "topic.message.timeout.ms=90000"], b"a\n", [(None, b"a")], id="librdkafka"),
    ],
)
def test_flags_of_kcat(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, arguments: list[str], given: bytes, expected: Records
) -> None:
    assert produce(monkeypatch, arguments, given) == 0
    assert seen(broker, committed=True) == expected


def test_headers_of_kcat(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = ["header1=header value", "nullheader", "emptyheader=", "header1=duplicateIsOk"]
    given = [word for header in headers for word in ("-H", header)]

    assert produce(monkeypatch, ["-t", "orders", *given], b"hello there\n") == 0

    (record,) = broker.records("orders")
    assert list(record.headers) == [
        ("header1", b"header value"),
        ("nullheader", None),
        ("emptyheader", b""),
        ("header1", b"duplicateIsOk"),
    ]


def test_files_of_kcat_are_records_and_with_l_their_lines_are(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    files = [tmp_path / "one.bin", tmp_path / "two.txt"]
    files[0].write_bytes(b"\0\n\xff")
    files[1].write_bytes(b"a\nb\n")
    names = [str(file) for file in files]

    assert produce(monkeypatch, ["-P", "-t", "orders", *names]) == 0
    assert produce(monkeypatch, ["-P", "-t", "orders", "-l", "-T", names[1]]) == 0
    assert produce(monkeypatch, ["orders", names[1]]) == 0

    assert seen(broker) == [(None, b"\0\n\xff"), (None, b"a\nb\n"), *[(None, b"a"), (None, b"b")] * 2]
    assert capfdbinary.readouterr().out == b"a\nb\n"


CONSOLE = ["--topic", "orders"]
KEYS = ["--property", "parse.key=true"]


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        pytest.param([], b"This is my first event\n", (None, b"This is my first event", ()), id="plain"),
        pytest.param([*KEYS, "--property", "key.separator=:"], b"k:v", (b"k", b"v", ()), id="key"),
        pytest.param(KEYS, b"k\tv\t", (b"k", b"v\t", ()), id="tab"),
        pytest.param(
            [*KEYS, "--reader-property", "parse.headers=true"],
            b"h1:v1,h2:v2\tkey\tvalue\n",
            (b"key", b"value", (("h1", b"v1"), ("h2", b"v2"))),
            id="headers",
        ),
        pytest.param(
            [
                "--property",
                "parse.headers=true",
                "--property",
                "headers.separator=;",
                "--property",
                "ignore.error=true",
            ],
            b"a:1;b\tvalue",
            (None, b"value", (("a", b"1"), ("b", None))),
            id="separators",
        ),
        pytest.param([*KEYS, "--property", "null.marker=NULL"], b"NULL\tNULL", (None, None, ()), id="null.marker"),
        pytest.param([*KEYS, "--property", "ignore.error=true"], b"value", (None, b"value", ()), id="ignore.error"),
        pytest.param(
            ["--producer-property", "acks=1", "--compression-codec", "--sync", "--timeout", "0", "--batch-size", "900"],
            b"value",
            (None, b"value", ()),
            id="producer",
        ),
    ],
)
def test_names_of_the_console_producer(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    given: bytes,
    expected: tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]],
) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")
    servers = ["--bootstrap-server", broker.bootstrap_servers]

    assert produce(monkeypatch, [*CONSOLE, *servers, *arguments], given) == 0

    (record,) = broker.records("orders")
    assert (record.key, record.value, tuple(record.headers)) == expected


@pytest.mark.parametrize(
    ("arguments", "given", "reason"),
    [
        (KEYS, b"no key", "it has no '\\t' after the key"),
        (["--property", "parse.headers=true"], b"a\tv", "its header 'a' has no ':'"),
        (["--property", "parse.headers=true", "--null-marker", "N"], b"N:1\tv", "the name of a header cannot be null"),
        (["--property", "parse.headers=true"], b"\xff:1\tv", "is not UTF-8"),
        (["--format", "json"], b"{", "it is not JSON"),
        (["--key-field", "user.id"], b'{"user": {}}', "it has no field 'user.id'"),
        (["--key-field", "1"], b"[0]", "it has no field '1'"),
        (["--format", "json"], b"[" * 50_000, "was not sent, because it"),
        (["--partition-field", "p"], b'{"p": "x"}', "its field 'p' is 'x', which is not a partition"),
        (["--timestamp-field", "t"], b'{"t": "soon"}', "its field 't' is 'soon', which is not a time"),
        (["--timestamp-field", "t"], b'{"t": 1.5}', "its field 't' is 1.5, which is not a time"),
        (["--value-field", "v"], b'{"v": "\\ud800"}', "half of a surrogate pair"),
        (["--format", "rejects"], b"[]", "it is not a JSON object, as in a file of --rejects"),
        (["--format", "rejects"], b"{}", "it does not come from a file of --rejects: KeyError"),
        (["-X", "max.request.size=1000"], b"x" * 2000, "max_request_size=1000"),
    ],
)
def test_a_line_that_is_no_record_ends_the_run_and_is_named(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    given: bytes,
    reason: str,
) -> None:
    assert produce(monkeypatch, [*CONSOLE, *arguments], given + b"\nnext\n") == 1

    error = capfd.readouterr().err
    assert reason in error
    assert "0 records written" in error
    assert "Not acknowledged: 1 refused." in error
    assert "Lines from 2 on were not sent: --skip 1 goes on there." in error
    assert not seen(broker)


def test_fields_of_json_are_the_parts_of_records(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "events.ndjson"
    lines = [
        '{"user": {"id": 7}, "p": 0, "at": "2026-11-26T00:00:00Z", "tags": ["a", "b"], "v": {"x": "ü"}}',
        '{"user": {"id": null}, "p": null, "at": 5, "tags": [1, true], "v": "text"}',
    ]
    file.write_text("\n".join(lines))
    fields = [
        "--key-field",
        "user.id",
        "--partition-field",
        "p",
        "--timestamp-field",
        "at",
        "--header-field",
        "t=tags.1",
    ]

    assert produce(monkeypatch, ["orders", str(file), *fields]) == 0
    assert produce(monkeypatch, ["orders", str(file), *fields, "--value-field", "v"]) == 0

    records = broker.records("orders")
    assert [record.value for record in records] == [*(line.encode() for line in lines), '{"x":"ü"}'.encode(), b"text"]
    assert [record.key for record in records] == [b"7", None] * 2
    assert [record.timestamp_ms for record in records] == [1_795_651_200_000, 5] * 2
    assert [tuple(record.headers) for record in records] == [(("t", b"b"),), (("t", b"true"),)] * 2


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "arrow", "stream"])
def test_rows_of_tables_are_records(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    table = pyarrow.table({"id": [1, 2], "name": ["a", "b"], "n": [10, None]})
    file = tmp_path / f"rows.{form}"
    given: list[str] = []
    if form in ("csv", "tsv"):
        mark = "," if form == "csv" else "\t"
        file.write_text(f"id{mark}name{mark}n\n1{mark}a{mark}10\n2{mark}b{mark}\n")
    elif form == "parquet":
        import_module("pyarrow.parquet").write_table(table, file)
    elif form == "arrow":
        import_module("pyarrow.feather").write_feather(table, file)
    else:
        given = ["--format", "arrow"]
        with pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)

    assert produce(monkeypatch, ["orders", str(file), "--key-field", "id", "--header-field", "h=name", *given]) == 0
    assert produce(monkeypatch, ["orders", str(file), "--value-field", "name", *given]) == 0
    assert produce(monkeypatch, ["orders", "--format", "parquet" if form == "parquet" else given[-1] if given else form],
                   file.read_bytes()) == 0  # fmt: skip

    values = [None if value is None else json.loads(value) if b"{" in value else value for _, value in seen(broker)]
    assert values[:2] == values[4:], "the whole row, with the key as it was"
    assert values[2:4] == [b"a", b"b"]
    assert values[4:] == [{"id": 1, "name": "a", "n": 10}, {"id": 2, "name": "b", "n": None}]
    assert [(record.key, tuple(record.headers)) for record in broker.records("orders")][:2] == [
        (b"1", (("h", b"a"),)),
        (b"2", (("h", b"b"),)),
    ]


def test_a_file_that_is_no_table_is_named(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.parquet"
    file.write_text("not at all")
    assert produce(monkeypatch, ["orders", str(file)]) == 2
    assert f"{file} is not a parquet file" in capfd.readouterr().err


def test_rejects_are_sent_by_a_second_run_and_nothing_else_is(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("small", TopicSpec(config=TopicConfig(max_message_bytes=1000)))
    broker.create_topic("large", TopicSpec())
    lines = [b"a\t1", b"no key", b"b\t" + b"x" * 2000, b"c\t3", b"d\t\xff" + b"y" * 3000, b"\xfe no key"]
    rejects = tmp_path / "rejects.ndjson"
    flags = [*KEYS, "--rejects", str(rejects)]

    assert produce(monkeypatch, ["small", *flags, "-H", "h=\xe4"], b"\n".join(lines)) == 1
    error = capfd.readouterr().err
    entries = [json.loads(line) for line in rejects.read_text().splitlines()]
    again = [
        "large",
        str(rejects),
        "--format",
        "rejects",
        "--property",
        "parse.key=true",
        "--property",
        "ignore.error=true",
    ]
    assert produce(monkeypatch, [*again, "--rejects", str(tmp_path / "none")]) == 0

    assert "2 records written" in error
    assert "2 refused, 2 not written" in error
    assert {entry["fate"] for entry in entries} == {"refused", "not written"}
    assert all(entry["reason"] for entry in entries)
    assert seen(broker, "small") == [(b"a", b"1"), (b"c", b"3")]
    assert sorted(seen(broker, "large"), key=str) == sorted(
        [(None, b"no key"), (b"b", b"x" * 2000), (b"d", b"\xff" + b"y" * 3000), (None, b"\xfe no key")], key=str
    )
    assert [tuple(record.headers) for record in broker.records("large") if record.key] == [(("h", b"\xc3\xa4"),)] * 2
    assert not (tmp_path / "none").exists()


def test_values_that_the_broker_refuses_are_rejected_too_where_they_are_appended_in_bulk(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker.create_topic("small", TopicSpec(config=TopicConfig(max_message_bytes=1000)))
    file, rejects = tmp_path / "lines.txt", tmp_path / "rejects.ndjson"
    lines = [b"%d" % number + (b"x" * 2000 if number % 10 == 3 else b"") for number in range(100)]
    file.write_bytes(b"\n".join(lines))

    assert produce(monkeypatch, ["small", str(file), "--rejects", str(rejects), "--json"]) == 1

    written = sorted(value for _, value in seen(broker, "small") if value)
    assert written == sorted(line for number, line in enumerate(lines) if number % 10 != 3)
    kept = [json.loads(line)["value"].encode() for line in rejects.read_text().splitlines()]
    assert sorted(kept) == sorted(lines[3::10])


def test_the_report_is_one_json_object_if_wanted(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, ["orders", "--json", "--skip", "1"], b"a\nb\n") == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert report.pop("seconds") >= 0
    assert report == {
        "topic": "orders",
        "ok": True,
        "delivered": 1,
        "not_written": 0,
        "unknown": 0,
        "refused": 0,
        "lines": 2,
        "empty": 0,
        "transaction": None,
        "stopped_at_line": None,
        "interrupted_by": None,
        "error": None,
    }
    assert not err


def test_a_transaction_is_all_or_nothing(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n{"b": 3}\n')

    assert produce(monkeypatch, ["orders", str(file), "--key-field", "a", "--transactional"]) == 1
    assert "Nothing was written to 'orders': the transaction was not committed." in capfd.readouterr().err
    assert not seen(broker, committed=True)

    assert produce(monkeypatch, ["orders", str(file), "--transactional"]) == 0
    assert "3 records written to 'orders' in one transaction" in capfd.readouterr().err
    assert len(seen(broker, committed=True)) == 3


@pytest.mark.slow  # a process
def test_a_killed_transaction_is_aborted_by_the_next_run(broker: FakeBroker) -> None:
    arguments = ("-v", "--transactional-id", "mine")
    with started(broker, *arguments) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"orders-0 @ 0")
        process.kill()
    with started(broker, *arguments) as process:
        process.communicate(b"one\ntwo\n")
        assert process.returncode == 0

    assert seen(broker, committed=True) == [(None, b"one"), (None, b"two")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_input_and_everything_that_was_read_is_delivered(
    broker: FakeBroker, number: signal.Signals
) -> None:
    with started(broker, "-v") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"orders-0 @ 0")
        process.send_signal(number)
        error = process.stderr.read().decode()
        assert process.wait() == 128 + number

    assert f"Interrupted by {number.name}." in error
    assert "1 record written" in error
    assert "Traceback" not in error
    assert seen(broker) == [(None, b"one")]


@pytest.mark.slow  # a process
def test_a_closed_pipe_is_no_stack_trace(broker: FakeBroker) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with started(broker, "-T", stdout=writing) as process:
        os.close(writing)
        error = process.communicate(b"x" * 100_000 + b"\n")[1]
        assert process.returncode == 1
    assert b"Traceback" not in error


def test_at_a_terminal_each_line_is_acknowledged(broker: FakeBroker) -> None:
    ours, theirs = pty.openpty()
    with started(broker, stdin=theirs) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert process.stderr.read(2) == b"> "
        os.write(ours, b"hello\n")
        assert process.stderr.readline().startswith(b"orders-0 @ 0")
        os.write(ours, b"\x04")  # Ctrl-D
        assert process.wait() == 0
    os.close(ours)
    assert seen(broker) == [(None, b"hello")]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "No topic is given"),
        (["orders", "/no/such/file"], "/no/such/file cannot be read: No such file or directory."),
        (["orders", "-K:", *KEYS], "-K and --property parse.key=true"),
        (["orders", "--property", "parse.keys=true"], "Unknown property 'parse.keys'"),
        (["orders", "-K", ""], "A delimiter must not be empty."),
        (["orders", "--property", "parse.headers=true", "--property", "headers.delimiter=,"], "must differ"),
        (["orders", "-H", "=x"], "Invalid header '=x'"),
        (
            ["orders", "--format", "lines", "--key-field", "x"],
            "--key-field has no effect on input of the format 'lines'",
        ),
        (
            ["orders", "--format", "csv", "-k", "x"],
            "-k has no effect on input of the format 'csv', only on file, json, lines, rejects",
        ),
        (["orders", "--format", "csv", "--rejects", "x"], "--rejects has no effect"),
        (["orders", "--value-field", "a", "--value-field", "b"], "Several --value-field are for tables"),
        (["orders", "-X", "acks=0", "--sync"], "acks=0 has no acknowledgements"),
        (["orders", "--rejects", "/no/such/folder/x"], "The rejects cannot be written to /no/such/folder/x"),
        (["orders", "-X", "lingerms=5"], "linger_ms"),
        (["orders", "--format", "json", "-K:"], "-K has no effect"),
        (["orders", "-Z"], "-Z is for lines with keys"),
        (["orders", "-l", "--format", "json"], "-l and --format json contradict each other"),
        (["orders", "--format", "csv", "-p", "0", "--partition-field", "p"], "both choose the partition"),
        (["orders", "--property", "parse.key=ture"], "Invalid property parse.key=ture"),
        (["orders", "--line-reader", "com.example.Reader"], "is a Java class"),
    ],
)
def test_wrong_arguments_are_explained(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    assert produce(monkeypatch, arguments, b"x\n") == 2
    assert complaint in capfd.readouterr().err
    assert not seen(broker)


# -- what a hostile reader found ------------------------------------------------------------------------------------


def test_rejects_never_replace_what_is_read_nor_a_device_and_follow_links(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, target, link = tmp_path / "lines.txt", tmp_path / "target", tmp_path / "link"
    file.write_bytes(b"no key\n")
    target.write_bytes(b"older")
    link.symlink_to(target)

    assert produce(monkeypatch, ["orders", str(file), "--rejects", str(file)]) == 2
    assert "is the file that is read" in capfd.readouterr().err
    assert produce(monkeypatch, ["orders", "/no/such/file", "--rejects", str(link)]) == 2
    assert (file.read_bytes(), target.read_bytes()) == (b"no key\n", b"older")

    assert produce(monkeypatch, ["orders", str(file), *KEYS, "--rejects", "/dev/null"]) == 1
    assert Path("/dev/null").is_char_device()
    capfd.readouterr()
    assert produce(monkeypatch, ["orders", str(file), *KEYS, "--rejects", str(link)]) == 2
    assert "may hold the rejects of an earlier run" in capfd.readouterr().err
    assert target.read_bytes() == b"older"
    target.write_bytes(b"")
    of_killed_run = target.with_name("target.partial")
    of_killed_run.write_bytes(b"{}")
    assert produce(monkeypatch, ["orders", str(file), *KEYS, "--rejects", str(link)]) == 2
    assert "target.partial exists, and may hold the rejects" in capfd.readouterr().err
    of_killed_run.unlink()
    assert produce(monkeypatch, ["orders", str(file), *KEYS, "--rejects", str(link)]) == 1
    assert link.is_symlink()
    assert json.loads(target.read_bytes())["line"] == "no key"


def test_rejects_that_cannot_be_written_are_an_error_of_the_run(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, ["orders", *KEYS, "--rejects", "/dev/full"], b"a\tb\nno key\n" * 10) == 1
    error = capfd.readouterr().err
    assert "10 records written" in error
    assert "10 refused" in error


def test_a_reject_that_is_refused_again_stays_the_line_that_it_was(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert produce(monkeypatch, ["orders", *KEYS, "--rejects", first], b"no key\n") == 1
    again = ["--format", "rejects"]
    assert produce(monkeypatch, ["orders", first, *again, "--rejects", second]) == 1
    file = Path(second)
    assert json.loads(file.read_bytes())["line"] == "no key"
    file.write_text(file.read_text().replace('"line": "no key"', '"line": "a\\tvalue"'))
    assert produce(monkeypatch, ["orders", second, *again]) == 0
    assert seen(broker) == [(b"a", b"value")]


@pytest.mark.parametrize(
    ("flags", "line", "repaired", "expected"),
    [
        (
            ["--key-field", "user.id"],
            '{"user":{"id":2},"v":}',
            '{"user":{"id":2},"v":2}',
            (b"2", b'{"user":{"id":2},"v":2}'),
        ),
        (["--key-field", "k", "--value-field", "v"], '{"k":1}', '{"k":1,"v":"x"}', (b"1", b"x")),
        (["--format", "json"], "{", "{}", (None, b"{}")),
        (["--property", "parse.key=true", "--property", "key.separator=:"], "no key", "k:v", (b"k", b"v")),
        (["--property", "parse.key=true", "--null-marker", "NULL"], "no key", "k\tNULL", (b"k", None)),
    ],
)
def test_a_repaired_line_is_read_as_it_was_meant(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: list[str],
    line: str,
    repaired: str,
    expected: tuple[bytes | None, bytes | None],
) -> None:
    """Without the flags of the first run: a key would be lost in silence."""
    file = tmp_path / "rejects"
    assert produce(monkeypatch, ["orders", *flags, "--rejects", str(file)], line.encode()) == 1
    entry = json.loads(file.read_bytes())
    assert entry["line"] == line
    file.write_text(json.dumps({**entry, "line": repaired}))
    assert produce(monkeypatch, ["orders", str(file), "--format", "rejects"]) == 0
    assert seen(broker) == [expected]


def test_numbers_stay_the_text_that_they_were(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"k": 1.50, "h": 12345678901234567890.123, "v": 1e400}'
    flags = ["--key-field", "k", "--header-field", "h=h", "--value-field", "v"]
    assert produce(monkeypatch, ["orders", *flags], line) == 0
    (record,) = broker.records("orders")
    assert (record.key, record.value) == (b"1.50", b"1e400")
    assert tuple(record.headers) == (("h", b"12345678901234567890.123"),)


def test_verbose_waits_for_no_record(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2000))
    assert produce(monkeypatch, ["orders", "-v", "-p", "0"], lines) == 0
    shown = [line.split()[:3] for line in capfd.readouterr().err.splitlines() if " @ " in line]
    assert shown == [["orders-0", "@", str(number)] for number in range(2000)]
    assert broker.count("Produce") < 1000


def test_a_file_that_is_not_text_is_not_sent_as_lines(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG\n\0\0")
    assert produce(monkeypatch, ["orders", str(file)]) == 2
    assert f"{file} is not text: --format file sends it as one record" in capfd.readouterr().err
    assert produce(monkeypatch, ["orders", str(file), "-l"]) == 0
    assert produce(monkeypatch, ["orders", str(file), "--format", "file"]) == 0
    for flags in (["-D", "\\0"], ["-K", "\\x00"]):
        assert produce(monkeypatch, ["payments", str(file), *flags]) == 0
    assert [value for _, value in seen(broker)] == [b"\x89PNG", b"\0\0", b"\x89PNG\n\0\0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["my topic"], "Invalid topic='my topic'"),
        (["orders", "."], ". cannot be read: it is a directory."),
        (["orders", "-P", "-K:", "FILE"], "-K has no effect with -P, which sends each FILE as one record: add -l"),
        (["orders", "ROWS", "--key-field", "b"], "--key-field b: rows.csv has no such column, only a."),
        (["orders", "ROWS", "--header-field", "h=x"], "--header-field x: rows.csv has no such column, only a."),
    ],
)
def test_a_run_that_cannot_start_has_the_reason(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a\n1\n")
    Path("file.txt").write_text("x")
    names = {"FILE": "file.txt", "ROWS": "rows.csv"}
    assert produce(monkeypatch, [names.get(each, each) for each in arguments]) == 2
    assert said in capfd.readouterr().err


def test_tables_without_rows(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("")
    assert produce(monkeypatch, ["orders", str(file), "--key-field", "a"]) == 0
    file.write_text("a,b\n")
    assert produce(monkeypatch, ["orders", str(file), "--key-field", "a"]) == 0
    assert not seen(broker)


def test_binary_columns(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.parquet"
    table = pyarrow.table({"k": [b"\xff"], "v": [1], "b": [b"\xfe"]})
    write_table = import_module("pyarrow.parquet").write_table
    write_table(table, file)
    assert produce(monkeypatch, ["orders", str(file), "--key-field", "k"]) == 2
    assert "Column 'b' of" in capfd.readouterr().err
    write_table(table.drop_columns(["b"]), file)
    assert produce(monkeypatch, ["orders", str(file), "--key-field", "k"]) == 0
    assert seen(broker) == [(b"\xff", b'{"v":1}')]
    write_table(pyarrow.Table.from_arrays([table["v"], table["v"]], names=["v", "v"]), file)
    assert produce(monkeypatch, ["orders", str(file)]) == 2
    assert "has two columns 'v'" in capfd.readouterr().err


def test_a_column_of_text_may_have_the_name_of_the_copy(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,id as text\n1,one\n")
    assert produce(monkeypatch, ["orders", str(file), "--key-field", "id"]) == 0
    ((key, value),) = seen(broker)
    assert (key, json.loads(value or b"")) == (b"1", {"id": 1, "id as text": "one"})


def test_a_table_that_stops_cannot_be_continued(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a\n" + "x\n" * 3 + "y" * 2000 + "\n")
    assert produce(monkeypatch, ["orders", str(file), "-X", "max.request.size=1000"]) == 1
    assert "with --transactional all of its rows are written, or none" in capfd.readouterr().err


def test_rejects_have_the_parts_that_flags_gave_to_their_records(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = str(tmp_path / "rejects")
    parts = ["-k", "key", "-H", "h=1", "-p", "0", "--timestamp-ms", "77"]
    given = b"x" * 2000
    assert produce(monkeypatch, ["orders", *parts, "-X", "max.request.size=1000", "--rejects", file], given) == 1
    assert produce(monkeypatch, ["orders", file, "--format", "rejects"]) == 0
    (record,) = broker.records("orders")
    assert (record.key, record.value, tuple(record.headers)) == (b"key", given, (("h", b"1"),))
    assert record.timestamp_ms == 77


def test_no_way_on_is_named_that_would_lose_records(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "lines.txt", tmp_path / "other.txt"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(100_000)))
    other.write_bytes(b"line\n")

    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    assert produce(monkeypatch, ["orders", str(file), "-X", "batch.size=1000"]) == 1
    assert "--skip" not in capfd.readouterr().err
    broker.clear_faults()
    with broker.hold("Metadata"):
        assert produce(monkeypatch, ["fresh", str(other), "-X", "max.block.ms=1"]) == 1
    assert "Lines from 1 on were not sent.\n" in capfd.readouterr().err
    assert produce(monkeypatch, ["orders", *KEYS, str(other)]) == 1
    assert "Lines from" not in capfd.readouterr().err, "it was the last one"
    assert produce(monkeypatch, ["orders", *KEYS, str(other), str(file)]) == 1
    assert "Lines from 2 on were not sent: --skip 1 goes on there." in capfd.readouterr().err


def test_standard_input_may_stand_among_files(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    assert produce(monkeypatch, ["orders", str(tmp_path / "a"), "-", str(tmp_path / "b")], b"input\n") == 0
    assert seen(broker) == [(None, b"a"), (None, b"input"), (None, b"b")]


@pytest.mark.slow  # a process
def test_a_named_pipe_is_read_as_its_writer_writes(broker: FakeBroker, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with started(broker, str(pipe), "-v") as process:
        assert process.stderr is not None
        with pipe.open("wb", buffering=0) as writer:
            writer.write(b"one\n")
            assert process.stderr.readline().startswith(b"orders-0 @ 0")
            writer.write(b"two\n")
        assert process.wait() == 0
    assert seen(broker) == [(None, b"one"), (None, b"two")]


@pytest.mark.slow  # a process
def test_a_count_ends_the_run_although_the_pipe_stays_open(broker: FakeBroker) -> None:
    with started(broker, "-c", "1") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.wait() == 0
    assert seen(broker) == [(None, b"one")]


@pytest.mark.slow  # a process
@pytest.mark.parametrize("form", ["file", "csv", "arrow"])
def test_a_signal_ends_the_wait_for_a_whole_file(broker: FakeBroker, form: str) -> None:
    with started(broker, "--format", form) as process:
        broker.wait_for(lambda running: running.count("ApiVersions") > 0)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


def test_times_in_iso_8601_are_exact_to_the_millisecond(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    times = ["2004-09-10T10:31:30.159Z", "2026-11-26T01:02:03.001+01:00", "2026-11-26T00:02:03.001"]
    given = "\n".join(json.dumps({"at": each}) for each in times).encode()
    assert produce(monkeypatch, ["orders", "--timestamp-field", "at"], given) == 0
    assert [record.timestamp_ms for record in broker.records("orders")] == [1094812290159, 1795651323001, 1795651323001]


@pytest.mark.slow  # a process
@pytest.mark.parametrize("flags", [(), ("--transactional-id", "mine")], ids=["records", "transaction"])
def test_a_signal_during_the_flush_delivers_or_aborts_and_reports(broker: FakeBroker, flags: tuple[str, ...]) -> None:
    with broker.hold("Produce") as hold, started(broker, *flags) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.close()
        broker.wait_for(lambda running: running.count("Produce") > 0)
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline().startswith(b"Interrupted: waiting")
        hold.release()
        error = process.stderr.read().decode()
        assert process.wait() == 143
    assert "Interrupted by SIGTERM." in error
    assert len(seen(broker, committed=True)) == (0 if flags else 2)
    assert ("Nothing was written" if flags else "2 records written") in error


@pytest.mark.slow  # a process
def test_a_signal_during_the_commit_lets_it_end(broker: FakeBroker) -> None:
    with broker.hold("EndTxn") as hold, started(broker, "--transactional-id", "mine") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.close()
        broker.wait_for(lambda running: running.count("EndTxn") > 0)
        process.send_signal(signal.SIGINT)
        hold.release()
        assert process.wait() == 0
    assert len(seen(broker, committed=True)) == 1


@pytest.mark.slow  # a process
def test_a_second_signal_ends_the_process_and_the_rejects_are_kept(broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "rejects"
    with broker.hold("Produce"), started(broker, *KEYS, "--rejects", str(file)) as process:
        assert process.stdin is not None
        process.stdin.write(b"no key\nkey\tvalue\n")
        process.stdin.close()
        broker.wait_for(lambda running: running.count("Produce") > 0)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
    assert json.loads(file.read_text())["line"] == "no key"


@pytest.mark.slow  # a process
def test_streams_that_the_shell_has_closed_do_no_harm(broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\n")
    words = f"{sys.executable} -m aioproducer produce orders -b {broker.bootstrap_servers}"
    codes = [
        subprocess.run(["sh", "-c", f"{words} {end}"], capture_output=True, check=False).returncode
        for end in (f"{file} <&- >&- 2>&-", "<&-")
    ]
    assert codes == [0, 2]
    assert seen(broker) == [(None, b"one")]


@pytest.mark.slow  # a process
def test_bytes_of_arguments_need_not_be_text(broker: FakeBroker) -> None:
    words = [sys.executable, "-m", "aioproducer", "produce", "orders", "-b", broker.bootstrap_servers]
    done = subprocess.run([*words, "-k", b"\xff", "-H", b"h=\xfe", "-D", b"\xfd"], input=b"a\xfdb", check=False)
    assert done.returncode == 0
    assert seen(broker) == [(b"\xff", b"a"), (b"\xff", b"b")]
    assert [tuple(record.headers) for record in broker.records("orders")] == [(("h", b"\xfe"),)] * 2


@pytest.mark.slow  # a process
def test_at_a_terminal_a_line_that_fails_is_named_at_once(broker: FakeBroker) -> None:
    ours, theirs = pty.openpty()
    with started(broker, *KEYS, stdin=theirs) as process:
        os.close(theirs)
        assert process.stderr is not None
        os.write(ours, b"no key\n")
        assert process.stderr.readline().startswith(b"> FAILED: line 1 was not sent")
        os.write(ours, b"k\tv\n")
        assert process.stderr.readline().startswith(b"> orders-0 @ 0")
        os.write(ours, b"\x04")
        assert process.wait() == 1
    os.close(ours)
