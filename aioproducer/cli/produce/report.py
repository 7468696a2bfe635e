"""Shows the progress of ``aioproducer produce``, and its result."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioproducer.cli.extras import is_installed
from aioproducer.cli.verb import ExitCode

if TYPE_CHECKING:
    from aioproducer import Producer, RecordMetadata
    from aioproducer.cli.produce.plan import Plan
    from aioproducer.cli.produce.run import Outcome

__all__ = ["Reporter", "sentences"]

_INTERVAL_S: Final = 0.2
_PLAIN_EVERY: Final = 25  # intervals, so five seconds

#: With fewer records the time to connect is most of the time.
_ENOUGH_FOR_A_RATE: Final = 1000

#: A process that a signal ended has this and the signal's number as its exit code.
_SIGNALS: Final = 128


class Reporter:
    """Writes to standard error, and with --json one object to standard output."""

    def __init__(self, options: argparse.Namespace, plan: Plan) -> None:
        self._topic = plan.topic
        self._is_json: bool = options.json
        self._is_quiet: bool = options.quiet
        self.is_verbose = options.verbose > 0
        self._is_prompt = plan.is_prompt
        sizes = [path.stat().st_size for path, form in plan.files if form in ("lines", "json", "rejects")]
        self._total = sum(sizes) if sizes and len(sizes) == len(plan.files) else None

    def prompt(self) -> None:
        """Ask for a line."""
        print("> ", end="", file=sys.stderr, flush=True)

    def acknowledged(self, metadata: RecordMetadata, seconds: float) -> None:
        """A record is written."""
        if (self.is_verbose or self._is_prompt) and not self._is_quiet:
            at = f"{metadata.topic}-{metadata.partition}"
            print(f"{at} @ {metadata.offset}  ({seconds * 1000:.1f} ms)", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, outcome: Outcome, producer: Producer) -> Generator[None, None, None]:
        """Show the progress while the block runs; nothing for a prompt."""
        if self._is_quiet or self._is_prompt or self.is_verbose or self._is_json:
            yield
            return
        task = asyncio.ensure_future(self._show(outcome, producer))
        try:
            yield
        finally:
            task.cancel()

    async def _show(self, outcome: Outcome, producer: Producer) -> None:
        began = asyncio.get_running_loop().time()
        if sys.stderr.isatty() and is_installed("rich"):
            await self._show_bar(outcome, producer, began)
        number = 0
        while True:
            await asyncio.sleep(_INTERVAL_S)
            number += 1
            if number % _PLAIN_EVERY == 0:
                print(f"{self._pace(outcome, producer, began)}.", file=sys.stderr, flush=True)

    async def _show_bar(self, outcome: Outcome, producer: Producer, began: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [TextColumn("{task.fields[note]}")]
        known = [BarColumn(bar_width=24), TimeRemainingColumn()] if self._total else []
        with Progress(*known, *columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=self._total, note="")
            while True:
                bar.update(task, completed=outcome.bytes_read, note=self._pace(outcome, producer, began))
                await asyncio.sleep(_INTERVAL_S)

    def _pace(self, outcome: Outcome, producer: Producer, began: float) -> str:
        seconds = max(asyncio.get_running_loop().time() - began, 1e-9)
        delivered = int(producer.metrics()["record-delivered-total"])
        failed = outcome.refused + outcome.not_written + outcome.unknown
        bad = f", {failed:,} failed" if failed else ""
        share = f", {outcome.bytes_read / self._total:.0%} read" if self._total else ""
        return f"{delivered:,} records delivered, {delivered / seconds:,.0f} records/s{bad}{share}"

    def conclude(self, outcome: Outcome) -> ExitCode:
        """Write the result, and return the exit code."""
        if self._is_json:
            print(json.dumps(as_json(outcome, self._topic), indent=2))
        elif not (self._is_quiet and outcome.is_good):
            print("\n".join(sentences(outcome, self._topic)), file=sys.stderr)
        if outcome.decision == "unknown":
            return ExitCode.UNKNOWN
        if outcome.interrupted_by is not None:
            return ExitCode(_SIGNALS + outcome.interrupted_by)
        return ExitCode.OK if outcome.is_good else ExitCode.BAD


def as_json(outcome: Outcome, topic: str) -> dict[str, object]:
    """The result for programs."""
    return {
        "topic": topic,
        "ok": outcome.is_good,
        "delivered": 0 if outcome.decision == "not committed" else outcome.delivered,
        "not_written": outcome.not_written,
        "unknown": outcome.unknown,
        "refused": outcome.refused,
        "lines": outcome.lines,
        "seconds": round(outcome.seconds, 3),
        "transaction": outcome.decision,
        "stopped_at_line": outcome.stopped_at,
        "error": outcome.error,
    }


def sentences(outcome: Outcome, topic: str) -> list[str]:
    """The result for people."""
    found: list[str] = []
    written = f"{outcome.delivered:,} record{'' if outcome.delivered == 1 else 's'}"
    if outcome.decision == "not committed":
        found.append(f"Nothing was written to {topic!r}: the transaction was not committed.")
    elif outcome.decision == "unknown":
        found.append(f"It is not known whether the transaction of {written} was committed.")
    else:
        how = "in one transaction and" if outcome.decision == "committed" else "in"
        rate = (
            f" ({outcome.delivered / outcome.seconds:,.0f} records/s)"
            if outcome.delivered >= _ENOUGH_FOR_A_RATE
            else ""
        )
        found.append(f"{written} written to {topic!r} {how} {outcome.seconds:.1f} s{rate}.")
    failed = {
        "refused": outcome.refused,
        "not written": outcome.not_written,
        "possibly written": outcome.unknown,
    }
    parts = [f"{count:,} {what}" for what, count in failed.items() if count]
    if parts:
        found.append(f"Of the others: {', '.join(parts)}.")
    if outcome.empty:
        found.append(f"{outcome.empty:,} empty line(s) were skipped; --keep-empty sends them.")
    if outcome.error is not None:
        found.append(f"First error: {outcome.error}")
    if outcome.interrupted_by is not None:
        found.append(f"Interrupted by {signal.Signals(outcome.interrupted_by).name}.")
    if outcome.stopped_at is not None and outcome.decision is None:
        found.append(
            f"Lines from {outcome.stopped_at:,} on were not sent: --skip {outcome.stopped_at - 1} goes on there."
        )
    return found
