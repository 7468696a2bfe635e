"""Converts rows' timestamps (seconds, milliseconds or Spark's timestamps) to Kafka's: integer milliseconds since 1970."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from aioproducer.errors import InvalidRecord

__all__ = ["LARGEST_SECOND", "are_no_times", "format_timestamp", "in_milliseconds", "milliseconds"]

#: Kafka's milliseconds have 63 bits.
LARGEST_SECOND: Final = (2**63 - 1) // 1000

_PER_SECOND: Final = 1000.0
_PER_MILLISECOND: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: The range of 64 bits as doubles: from the first (inclusive) to the second (exclusive).
_INT64: Final = (-(2.0**63), 2.0**63)


def in_milliseconds(table: Any) -> Any:
    """The table with the column ``timestamp`` in milliseconds, as the producer expects it.

    Raises `InvalidRecord` for a row whose timestamp is invalid in Kafka.
    """
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    at = table.schema.get_field_index("timestamp")
    column = table.column(at)
    stamps = milliseconds(column)
    bad = compute.or_(are_no_times(column), compute.fill_null(compute.less(stamps, 0), False))
    first = compute.index(bad, True).as_py()
    if first >= 0:
        raise InvalidRecord(
            f"A row has {format_timestamp(column[first])} in the column 'timestamp', but Kafka's times start at 1970 "
            "and have 63 bits of milliseconds (a double counts seconds). Correct it, or set it to null for the time of "
            "writing; or write such rows to another topic: .option('on.record.error', 'dead-letter:<topic>')."
        )
    return table.set_column(at, "timestamp", stamps) if pa.types.is_float64(column.type) else table


def milliseconds(column: Any) -> Any:
    """Rounded down, which Arrow's own cast does not do before 1970; null for values that `are_no_times` marks."""
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
    """Mask of numbers that do not fit 64 bits of milliseconds, including NaN, excluding null."""
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    if not pa.types.is_float64(column.type):
        return pa.repeat(pa.scalar(False), len(column))
    whole = compute.floor(compute.multiply(column, _PER_SECOND))
    smallest, above = _INT64
    is_one = compute.and_(compute.greater_equal(whole, smallest), compute.less(whole, above))
    return compute.fill_null(compute.invert(is_one), False)


def format_timestamp(stamp: Any) -> str:
    """The timestamp as text: as a date, or as a number if it is outside of Python's range."""
    try:
        return str(stamp)
    except (OverflowError, ValueError):
        return f"{stamp.value} {stamp.type.unit} since 1970"
