"""The whole command, on a handful of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cli import main
from benchmarks.results import Results

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_one_command_compares_clients_and_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = "pipelined-100b,concurrent,lone,idle"
    clients = ["aioproducer", "confluent", "aiokafka", "socket"]

    options = ["--quick", "--records", "500", "--broker", "mock", "--out", str(tmp_path)]
    main([*options, "--cases", cases, "--clients", ",".join(clients)])

    results = Results.load(tmp_path / "results.json")
    assert results.missing == []
    assert results.clients("mock", "pipelined-100b") == clients[:3]
    assert results.clients("mock", "lone") == clients
    assert results.counted == {"mock": len(results.runs)}
    assert "not measured" in capsys.readouterr().out
    assert (tmp_path / "README.md").exists()


def test_the_error_of_an_unknown_name_lists_the_known_names() -> None:
    with pytest.raises(SystemExit, match="pipelined-100b"):
        main(["--cases", "piplined"])
