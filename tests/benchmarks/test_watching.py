"""The whole command, for a moment of each run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.watching import main

_MODES = ("plain", "metrics", "sampled out", "recorded", "no-op interceptor", "SDK alone")
_SENDING = [f"{kind}, {mode}" for kind in ("enqueue", "send") for mode in _MODES]
_RUNS = [*_SENDING, "bare span, sampled out", "bare span, recorded"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_command_measures_each_mode_and_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "watching.json"

    main(["--broker", "mock", "--rounds", "1", "--seconds", "0.05", "--json", str(file)])

    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    table = {line[0]: line[1:] for line in lines[1:]}  # without the titles
    assert list(table) == _RUNS
    assert all(float(cells[at].removesuffix(" us")) > 0 for cells in table.values() for at in (0, 3))
    assert table["send, plain"][1:3] == ["1.00 x", "+0.00 us"]
    found = json.loads(file.read_text())
    assert [f"{row['kind']}, {row['mode']}" for row in found["medians"]] == _RUNS
    assert all(row["time_us"] > 0 and row["cpu_us"] > 0 for row in found["medians"])
    assert [len(figures) for by_mode in found["runs"].values() for figures in by_mode.values()] == [1] * len(_RUNS)


def test_the_error_of_an_invalid_number_of_rounds_has_the_least(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--rounds", "0"])

    assert "at least 1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_record_too_many_in_the_log_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_more(servers: str, topic: str, expected: int) -> int:
        return expected + 1

    monkeypatch.setattr("benchmarks.watching.count_records", one_more)

    with pytest.raises(SystemExit, match="were acknowledged"):
        main(["--broker", "mock", "--rounds", "1", "--seconds", "0.05"])
