"""The report of ``aioproducer doctor``: steps and their findings, the verdict, and both of its forms; decides only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "Finding",
    "Outcome",
    "Step",
    "as_json",
    "closing",
    "counted",
    "fault",
    "good",
    "is_sound",
    "line",
    "skipped",
    "warning",
]


class Outcome(StrEnum):
    """The outcome of a step, or of one part of it."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """One observation and its meaning; a fault has a cause, and what to change."""

    outcome: Outcome
    sentence: str
    cause: str = ""
    change: str = ""


def good(sentence: str) -> Finding:
    """A finding without a problem."""
    return Finding(Outcome.OK, sentence)


def skipped(sentence: str) -> Finding:
    """The reason why a step was not made."""
    return Finding(Outcome.SKIPPED, sentence)


def warning(sentence: str, cause: str = "", change: str = "") -> Finding:
    """A problem with which a producer works."""
    return Finding(Outcome.WARNING, sentence, cause, change)


def fault(sentence: str, cause: str, change: str) -> Finding:
    """A problem with which a producer does not work."""
    return Finding(Outcome.FAULT, sentence, cause, change)


def counted(number: int, noun: str) -> str:
    """The number and the noun in the singular or the plural."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


_MARKS: Final = {Outcome.OK: "ok", Outcome.WARNING: "warn", Outcome.FAULT: "FAULT", Outcome.SKIPPED: "skip"}
#: The worst one first.
_SEVERITY: Final = (Outcome.FAULT, Outcome.WARNING, Outcome.OK, Outcome.SKIPPED)


class Step(NamedTuple):
    """One step of the examination."""

    name: str
    milliseconds: float
    findings: Sequence[Finding]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome among its findings."""
        found = {each.outcome for each in self.findings}
        return next((each for each in _SEVERITY if each in found), Outcome.SKIPPED)

    @property
    def sentence(self) -> str:
        """All findings in one sentence, the worst first."""
        ranked = sorted(self.findings, key=lambda each: _SEVERITY.index(each.outcome))
        return "; ".join(dict.fromkeys(each.sentence for each in ranked)) + "."


def is_sound(steps: Sequence[Step]) -> bool:
    """Whether a producer would work."""
    return not any(step.outcome is Outcome.FAULT for step in steps)


def line(step: Step) -> str:
    """The step's line of the text report."""
    took = "" if step.outcome is Outcome.SKIPPED else f"{step.milliseconds:.1f} ms"
    return f"{_MARKS[step.outcome]:<5} {step.name:<12} {took:>11}  {step.sentence}"


def closing(steps: Sequence[Step]) -> Iterator[str]:
    """The verdict, then cause and change of each problem."""
    yield ""
    yield _verdict(steps)
    for finding in _problems(steps):
        yield ""
        yield f"{_MARKS[finding.outcome]}: {finding.sentence}."
        if finding.cause:
            yield f"  Cause:  {finding.cause}"
        if finding.change:
            yield f"  Change: {finding.change}"


def as_json(steps: Sequence[Step]) -> dict[str, Any]:
    """The report as one object."""
    return {
        "ok": is_sound(steps),
        "verdict": _verdict(steps),
        "steps": [
            {
                "name": step.name,
                "outcome": str(step.outcome),
                "milliseconds": round(step.milliseconds, 3),
                "sentence": step.sentence,
                "problems": [
                    {
                        "outcome": str(each.outcome),
                        "sentence": f"{each.sentence}.",
                        "cause": each.cause or None,
                        "change": each.change or None,
                    }
                    for each in _problems([step])
                ],
            }
            for step in steps
        ],
    }


def _problems(steps: Sequence[Step]) -> list[Finding]:
    found = [each for step in steps for each in step.findings]
    return [each for kind in (Outcome.FAULT, Outcome.WARNING) for each in found if each.outcome is kind]


def _verdict(steps: Sequence[Step]) -> str:
    problems = _problems(steps)
    faults = [each for each in problems if each.outcome is Outcome.FAULT]
    warnings = _counted(len(problems) - len(faults), "warning")
    if not faults:
        end = f", with {warnings}." if problems else "."
        return f"A producer with this configuration would work{end}"
    others = f" ({_counted(len(faults), 'fault')} in all)" if len(faults) > 1 else ""
    return f"A producer with this configuration would not work: {faults[0].sentence}{others}."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
