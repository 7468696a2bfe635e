"""Real brokers that are killed, paused, cut off and upgraded while programs send: every promise is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer.testing.kafka import KafkaUnavailable
from tests.chaos import __main__ as command
from tests.chaos.run import ChaosRun, Outcome, Setting
from tests.needs import not_here


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_promise_is_kept_while_real_brokers_suffer_and_are_upgraded() -> None:
    lines: list[str] = []
    try:
        outcome = await ChaosRun(Setting(7, 35.0, transactions=True, upgrade=True), lines.append).run()
    except KafkaUnavailable as error:
        not_here(str(error))

    assert not outcome.problems, "\n".join([*lines, *outcome.problems])
    assert outcome.misfortunes["upgrade"] == 4, "three brokers and the controller"
    assert sum(outcome.misfortunes.values()) >= 10
    assert outcome.lost["PRODUCE"] > 0
    assert outcome.reported["written"] > 0
    assert outcome.transactions["committed"] > 0


@pytest.mark.parametrize(("problems", "code"), [([], 0), (["lost: b'1' was acknowledged"] * 30, 1)])
def test_the_exit_code_is_the_verdict(
    problems: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Done:
        """A run that has ended."""

        def __init__(self, setting: Setting, show: Callable[[str], None]) -> None:
            self.setting = setting

        async def run(self) -> Outcome:
            """Return the outcome at once."""
            return Outcome(problems, 1_234, 5.0, {"written": 1_234}, {}, {"kill": self.setting.seed}, {"PRODUCE": 3})

    monkeypatch.setattr(command, "ChaosRun", Done)

    assert command.main(["--minutes", "0.1", "--seed", "42", "--upgrade"]) == code

    out = capsys.readouterr().out
    assert "python -m tests.chaos --minutes 0.1 --seed 42 --upgrade" in out
    assert "1,234 written" in out
    assert "42 kill" in out
    assert "3 PRODUCE" in out
    assert ("Every promise was kept" in out) is not bool(problems)
    assert out.count("BROKEN") == min(len(problems), 20)
