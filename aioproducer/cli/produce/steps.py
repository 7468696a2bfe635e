"""Runs a plan: opens its files one after the other, and sends them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from aioproducer.cli.produce.blocks import blocks, in_thread, whole
from aioproducer.cli.produce.rejects import RejectsFile
from aioproducer.cli.produce.run import LineSource, Outcome, ProduceRun

if TYPE_CHECKING:
    from aioproducer.cli.produce.plan import Input, Plan
    from aioproducer.cli.produce.report import Reporter
    from aioproducer.cli.produce.tables import ColumnTable
    from aioproducer.config import ProducerConfig

__all__ = ["produce"]


async def produce(config: ProducerConfig, plan: Plan, reporter: Reporter) -> Outcome:
    """Send what the plan names; returns the outcome. Raises Trouble before anything is sent."""
    for each in plan.inputs:
        if each.is_table and each.path is not None and each.path.is_file():
            await in_thread(_table(plan, each).check)
    rejects = RejectsFile(plan.rejects)
    waits = plan.is_sync or plan.is_prompt
    run = ProduceRun(
        config,
        plan.topic,
        rejects,
        goes_on=plan.goes_on or plan.is_prompt,
        acknowledged=reporter.acknowledged if waits or reporter.is_verbose else None,
        waits=waits,
        failed=reporter.failed if plan.is_prompt else None,
        interrupted=reporter.interrupted,
        tee=partial(_write, plan.delimiter) if plan.is_tee else None,
    )

    async def steps() -> None:
        for number, each in enumerate(plan.inputs):
            if not await _send_input(run, plan, each, reporter):
                if number + 1 < len(plan.inputs):
                    run.leave()
                return

    with reporter.progress(run.outcome, run.producer):
        return await run.run(steps)


def _write(end: bytes, line: bytes) -> None:
    sys.stdout.buffer.write(line + end)


async def _send_input(run: ProduceRun, plan: Plan, each: Input, reporter: Reporter) -> bool:
    if each.is_table:
        return await run.send_table(_table(plan, each))
    prompt = reporter.prompt if plan.is_prompt else None
    lines = whole(each.path) if each.format == "file" else blocks(each.path, plan.delimiter, prompt)
    return await _send_lines(run, lines, _source(plan, each))


async def _send_lines(run: ProduceRun, lines: AsyncGenerator[list[bytes], None], source: LineSource) -> bool:
    async with aclosing(lines):
        return await run.send_lines(lines, source)


def _source(plan: Plan, each: Input) -> LineSource:
    parser = plan.parsers.get(each.format)
    return LineSource(
        parser=None if each.format == "file" or getattr(parser, "is_plain", False) else parser,
        key=plan.key,
        headers=plan.headers,
        partition=plan.partition,
        timestamp_ms=plan.timestamp_ms,
        skip=plan.skip,
        limit=plan.limit,
        keeps_empty=plan.keeps_empty,
        is_file=each.path is not None and each.path.is_file(),
    )


def _table(plan: Plan, each: Input) -> ColumnTable:
    from aioproducer.cli.extras import require
    from aioproducer.cli.produce.tables import ColumnTable

    require(f"Reading {each.format}", ["pyarrow"], "arrow")
    fields = plan.fields
    return ColumnTable(
        each.path if each.path is not None else sys.stdin.buffer,
        each.format,
        key=fields.key,
        values=plan.table_values,
        header_columns=fields.headers,
        headers={name: value or b"" for name, value in plan.headers},
        partition=fields.partition if fields.partition is not None else plan.partition,
        timestamp=fields.timestamp,
    )
