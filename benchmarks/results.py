"""The raw results of all runs; medians and ratios are computed from them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.measure import Figures

__all__ = ["Results", "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """One client, one case, one broker, one round; ``is_counted`` where its topic held exactly what was sent."""

    broker: str
    case: str
    client: str
    round: int
    figures: Figures
    is_counted: bool = True


@dataclass(slots=True)
class Results:
    """All runs of one command, and the facts about them for the reader of a report."""

    runs: list[Run] = field(default_factory=list[Run])
    #: Why a client is not in a case: (broker, case, client, reason).
    missing: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])
    #: Machine, versions, settings.
    about: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def counted(self) -> Mapping[str, int]:
        """The number of counted runs, by broker."""
        return Counter(run.broker for run in self.runs if run.is_counted)

    def clients(self, broker: str, case: str) -> list[str]:
        """The clients that took part, in the order of the first round."""
        return list(dict.fromkeys(run.client for run in self._runs(broker, case)))

    def median(self, broker: str, case: str, client: str, figure: str) -> float | None:
        """The median over the rounds; None where it was not measured."""
        values = self._by_round(broker, case, client, figure).values()
        return statistics.median(values) if values else None

    def ratio(self, broker: str, case: str, client: str, other: str, figure: str, other_case: str = "") -> float | None:
        """The median of the rounds' ratios of one client's figure to another's; None where one of them is missing.

        Not the ratio of medians: so disturbances of a whole round cancel out.
        """
        ours = self._by_round(broker, case, client, figure)
        theirs = self._by_round(broker, other_case or case, other, figure)
        ratios = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]]
        return statistics.median(ratios) if ratios else None

    def _by_round(self, broker: str, case: str, client: str, figure: str) -> Mapping[int, float]:
        return {
            run.round: run.figures[figure]
            for run in self._runs(broker, case)
            if run.client == client and figure in run.figures
        }

    def _runs(self, broker: str, case: str) -> Iterable[Run]:
        return (run for run in self.runs if run.broker == broker and run.case == case)

    def renewed(self, newer: Self) -> Self:
        """These results, with the cases that ``newer`` has as they are there; ``about`` says where they were measured."""
        cases = {(run.broker, run.case) for run in newer.runs}
        kept = [run for run in self.runs if (run.broker, run.case) not in cases]
        names = list(dict.fromkeys(f"{run.case} ({run.broker})" for run in newer.runs))
        before = {
            ", ".join(each for each in name.split(", ") if each not in names): reported
            for name, reported in self.about.items()
        }
        before.pop("", None)  # all of them were measured again
        about = {name: value for name, value in newer.about.items() if value != self.about.get(name)}
        where = "; ".join(f"{name} {value}" for name, value in about.items()) or "measured later"
        return type(self)(
            kept + newer.runs,
            [each for each in self.missing if each[:2] not in cases] + newer.missing,
            before | {", ".join(names): where},
        )

    def save(self, path: Path) -> None:
        """Write everything as JSON, so that a report can be made again."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """The results that `save` has written."""
        found: dict[str, Any] = json.loads(path.read_text())
        found["runs"] = [Run(**run) for run in found["runs"]]
        found["missing"] = [tuple(each) for each in found["missing"]]
        return cls(**found)
