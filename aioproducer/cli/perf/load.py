"""The load of ``aioproducer perf``: the records, their pace, and the moments at which transactions end; has no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from aioproducer.cli.verb import Trouble

__all__ = ["BURST", "Load", "due", "key_source", "pause", "payloads_in", "random_payloads"]

#: The shortest pause in seconds: records due within it are sent as one burst.
BURST: Final = 0.001
#: Random bytes are generated once and cut into values. No part recurs within these many, which are more than a batch: so
#: values compress as if each were random.
_POOL: Final = 4 << 20
_LETTERS: Final = bytes(65 + number % 26 for number in range(256))


@dataclass(frozen=True, slots=True)
class Load:
    """The records of a run. ``value`` and ``key`` return those of a record by its number; ``key`` None: no keys.

    ``rate`` is in records per second, None without a limit; ``interval`` (of windows) and ``transaction_s`` in seconds.
    """

    topic: str
    records: int
    value: Callable[[int], bytes]
    key: Callable[[int], bytes] | None = None
    rate: float | None = None
    warmup: int = 0
    interval: float = 5.0
    transaction_s: float = 3.0


def due(elapsed: float, rate: float, sent: int, records: int) -> int:
    """The number of records that should be sent at once, ``elapsed`` seconds after the start; at most all that are left."""
    return min(int(elapsed * rate) + 1, records) - sent


def pause(elapsed: float, rate: float, sent: int) -> float:
    """The seconds until the next record is due."""
    return max(BURST, sent / rate - elapsed)


def random_payloads(size: int, seed: int = 0) -> Callable[[int], bytes]:
    """Values of random capital letters, the same in each run, as in Java's tool."""
    pool = Random(seed).randbytes(max(_POOL, size)).translate(_LETTERS)
    each_round = len(pool) // size

    def value(number: int) -> bytes:
        at = number % each_round * size
        return pool[at : at + size]

    return value


def key_source(count: int) -> Callable[[int], bytes]:
    """``count`` different keys, in turn."""
    return lambda number: b"%d" % (number % count)


def payloads_in(path: Path, delimiter: str) -> Sequence[bytes]:
    r"""The values in a UTF-8 file; ``delimiter`` is a regular expression, as in Java's tool: ``\n`` is a new line."""
    try:
        found = re.split(f"(?:{delimiter})", path.read_text(encoding="utf-8"))
        if re.compile(delimiter).groups:
            raise Trouble(f"Invalid --payload-delimiter {delimiter!r}: groups must begin with (?: here.")
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"The payloads in {path} cannot be read: {error}.") from error
    except re.error as error:
        raise Trouble(f"Invalid --payload-delimiter {delimiter!r}: {error}.") from error
    if not found[-1]:
        found.pop()
    if not found:
        raise Trouble(f"{path} has no payloads: it is empty.")
    return [each.encode() for each in found]
