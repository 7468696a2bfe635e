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
    from pathlib import Path

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
        self._rejects = plan.rejects
        files = [each.path for each in plan.inputs if each.path is not None and each.path.is_file()]
        is_known = len(files) == len(plan.inputs) and not any(each.is_table for each in plan.inputs)
        self._total = sum(path.stat().st_size for path in files) if is_known else None

    def prompt(self) -> None:
        """Ask for a line."""
        print("> ", end="", file=sys.stderr, flush=True)

    def acknowledged(self, metadata: RecordMetadata, seconds: float) -> None:
        """A record is written."""
        if (self.is_verbose or self._is_prompt) and not self._is_quiet:
            at = f"{metadata.topic}-{metadata.partition}"
            print(f"{at} @ {metadata.offset}  ({seconds * 1000:.1f} ms)", file=sys.stderr, flush=True)

    def failed(self, reason: str) -> None:
        """A line at the prompt was not sent, or not written."""
        print(f"FAILED: {reason}", file=sys.stderr, flush=True)

    def interrupted(self) -> None:
        """A signal has ended the reading."""
        if not self._is_quiet:
            text = "Interrupted: waiting for the records in flight. A second signal ends this at once."
            print(text, file=sys.stderr, flush=True)

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
            try:
                print(json.dumps(as_json(outcome, self._topic), indent=2), flush=True)
            except OSError as error:
                print(f"aioproducer produce: the report cannot be written: {error.strerror}.", file=sys.stderr)
                return ExitCode.BAD
        elif not (self._is_quiet and outcome.is_good):
            print("\n".join(sentences(outcome, self._topic, rejects=self._rejects)), file=sys.stderr)
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
        "empty": outcome.empty,
        "seconds": round(outcome.seconds, 3),
        "transaction": outcome.decision,
        "stopped_at_line": outcome.stopped_at,
        "interrupted_by": None if outcome.interrupted_by is None else signal.Signals(outcome.interrupted_by).name,
        "error": outcome.error,
    }


def sentences(outcome: Outcome, topic: str, *, rejects: Path | None) -> list[str]:
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
        kept = "" if rejects is None else f"; they are in {rejects}, and --format rejects sends them again"
        found.append(f"Not acknowledged: {', '.join(parts)}{kept}.")
    if outcome.empty:
        what = "empty line or file was" if outcome.empty == 1 else "empty lines or files were"
        found.append(f"{outcome.empty:,} {what} skipped; --keep-empty sends them.")
    if outcome.error is not None:
        found.append(f"First error: {outcome.error}")
    if outcome.interrupted_by is not None:
        found.append(f"Interrupted by {signal.Signals(outcome.interrupted_by).name}.")
    if outcome.stopped_at is not None and outcome.decision is None:
        found.append(f"Lines from {outcome.stopped_at:,} on were not sent{_way_on(outcome, rejects is not None)}")
    if outcome.has_tables and outcome.decision is None and not outcome.is_good:
        found.append("A table cannot be continued: with --transactional all of its rows are written, or none.")
    return found


def _way_on(outcome: Outcome, keeps_rejects: bool) -> str:
    """The end of the sentence that says where the run stopped."""
    skipped = (outcome.stopped_at or 1) - 1
    if not skipped:
        return "."
    if keeps_rejects or not (outcome.not_written or outcome.unknown):
        return f": --skip {skipped} goes on there."
    return ", nor some of those before: with --rejects FILE a run keeps those that fail."
