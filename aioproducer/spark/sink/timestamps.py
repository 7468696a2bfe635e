"""Timestamps of rows as Kafka counts them: whole milliseconds since 1970, of seconds, milliseconds or Spark's timestamps."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from aioproducer.errors import InvalidRecord

__all__ = ["LARGEST_SECOND", "are_no_times", "format_timestamp", "in_milliseconds", "milliseconds"]

#: Kafka has 63 bits for the milliseconds.
LARGEST_SECOND: Final = (2**63 - 1) // 1000

_PER_SECOND: Final = 1000.0
_PER_MILLISECOND: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: As doubles: those from the first one on, and below the second one, are those of 64 bits.
_INT64: Final = (-(2.0**63), 2.0**63)


def in_milliseconds(table: Any) -> Any:
    """The table with the column ``timestamp`` as the producer takes it: seconds have become milliseconds.

    Raises `InvalidRecord` for a row whose timestamp Kafka cannot have.
    """
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    at = table.schema.get_field_index("timestamp")
    column = table.column(at)
    stamps = milliseconds(column)
    bad = compute.or_(are_no_times(column), compute.fill_null(compute.less(stamps, 0), False))
    first = compute.index(bad, True).as_py()
    if first >= 0:
        raise InvalidRecord(
            f"A row has {format_timestamp(column[first])} in the column 'timestamp', and Kafka's times are from 1970 "
            "on, in 63 bits of milliseconds (a double counts seconds). Correct it, or make it null, which is the time of "
            "writing; or let such rows go to a topic of their own: .option('on.record.error', 'dead-letter:<topic>')."
        )
    return table.set_column(at, "timestamp", stamps) if pa.types.is_float64(column.type) else table


def milliseconds(column: Any) -> Any:
    """Rounded down, which Arrow's own cast does not do before 1970; null for what `are_no_times`."""
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    if pa.types.is_float64(column.type):
        whole = compute.floor(compute.multiply(column, _PER_SECOND))
        null = pa.scalar(None, whole.type)
        return compute.if_else(are_no_times(column), null, whole).cast("int64")
    numbers = column.cast("int64")
    unit = column.type.unit if pa.types.is_timestamp(column.type) else "ms"
    if unit == "s":
        return compute.multiply(numbers, 1000)
    divisor = _PER_MILLISECOND[unit]
    towards_zero = compute.divide(numbers, divisor)
    is_above = compute.greater(compute.multiply(towards_zero, divisor), numbers)
    return compute.subtract(towards_zero, is_above.cast("int64"))


def are_no_times(column: Any) -> Any:
    """Which rows have a number that 64 bits of milliseconds cannot be, NaN among them; null is none."""
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    if not pa.types.is_float64(column.type):
        return pa.repeat(pa.scalar(False), len(column))
    whole = compute.floor(compute.multiply(column, _PER_SECOND))
    smallest, above = _INT64
    is_one = compute.and_(compute.greater_equal(whole, smallest), compute.less(whole, above))
    return compute.fill_null(compute.invert(is_one), False)


def format_timestamp(stamp: Any) -> str:
    """A timestamp as it stands in the column: as a date, or as its number where Python has no such date."""
    try:
        return str(stamp)
    except (OverflowError, ValueError):
        return f"{stamp.value} {stamp.type.unit} since 1970"
