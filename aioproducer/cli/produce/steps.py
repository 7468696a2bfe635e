"""Runs a plan: opens its files one after the other, and sends them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from aioproducer.cli.produce.blocks import blocks
from aioproducer.cli.produce.rejects import RejectsFile
from aioproducer.cli.produce.run import LineSource, Outcome, ProduceRun, Table

if TYPE_CHECKING:
    from aioproducer.cli.produce.plan import Plan
    from aioproducer.cli.produce.report import Reporter
    from aioproducer.config import ProducerConfig

__all__ = ["produce"]


async def produce(config: ProducerConfig, plan: Plan, reporter: Reporter) -> Outcome:
    """Send what the plan names; returns the outcome. Raises Trouble before anything is sent, and OSError."""
    rejects = RejectsFile(plan.rejects)
    one_by_one = plan.is_sync or plan.is_prompt or reporter.is_verbose
    run = ProduceRun(
        config,
        plan.topic,
        rejects,
        goes_on=plan.goes_on or plan.is_prompt,
        acknowledged=reporter.acknowledged if one_by_one else None,
        tee=sys.stdout.buffer if plan.is_tee else None,
    )

    async def steps() -> None:
        for path, form in plan.files:
            if not await _send_file(run, plan, path, form):
                return
        if not plan.files:
            await _send_input(run, plan, reporter)

    with reporter.progress(run.outcome, run.producer):
        return await run.run(steps)


async def _send_file(run: ProduceRun, plan: Plan, path: Path, form: str) -> bool:
    if form not in ("lines", "json", "rejects", "file"):
        return await run.send_table(_table(plan, path, form))
    with path.open("rb", buffering=0) as file:
        lines = _whole(file) if form == "file" else blocks(file, plan.delimiter)
        return await _send_lines(run, lines, _source(plan, form))


async def _send_input(run: ProduceRun, plan: Plan, reporter: Reporter) -> None:
    form = plan.format_of_input
    if form in ("lines", "json", "rejects"):
        prompt = reporter.prompt if plan.is_prompt else None
        await _send_lines(run, blocks(sys.stdin.buffer, plan.delimiter, prompt), _source(plan, form))
    elif form == "file":
        await _send_lines(run, _whole(sys.stdin.buffer), _source(plan, form))
    else:
        await run.send_table(_table(plan, sys.stdin.buffer, form))


async def _send_lines(run: ProduceRun, lines: AsyncGenerator[list[bytes], None], source: LineSource) -> bool:
    async with aclosing(lines):
        return await run.send_lines(lines, source)


async def _whole(file: BinaryIO) -> AsyncGenerator[list[bytes], None]:
    yield [file.read()]


def _source(plan: Plan, form: str) -> LineSource:
    parser = plan.parsers.get(form)
    return LineSource(
        parser=None if form == "file" or getattr(parser, "is_plain", False) else parser,
        key=plan.key,
        headers=plan.headers,
        partition=plan.partition,
        timestamp_ms=plan.timestamp_ms,
        skip=plan.skip,
        limit=plan.limit,
        keeps_empty=plan.keeps_empty,
    )


def _table(plan: Plan, file: Path | BinaryIO, form: str) -> Table:
    from aioproducer.cli.extras import require
    from aioproducer.cli.produce.tables import ColumnTable

    require(f"Reading {form}", ["pyarrow"], "arrow")
    fields = plan.fields
    return ColumnTable(
        file,
        form,
        key=fields.key,
        values=plan.table_values,
        header_columns=fields.headers,
        headers={name: value or b"" for name, value in plan.headers},
        partition=fields.partition if fields.partition is not None else plan.partition,
        timestamp=fields.timestamp,
    )
