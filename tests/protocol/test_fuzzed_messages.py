"""Every message, in each version that is spoken, from bytes that are nearly right: a message or our error, and soon."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.protocol import Message
from tests.fuzzing import each_count, survive
from tests.protocol.spoken import every_message


@each_count
@every_message
def test_a_message_that_is_nearly_right(
    cls: type[Message], version: int, filled: Callable[..., Message], count: int
) -> None:
    seeds = [filled(cls, version, tagged=tagged).encode(version) for tagged in (True, False)]

    survived = survive(f"{cls.__name__} {version}", partial(cls.decode, version), seeds, ProtocolError, count)

    assert survived.refused > count // 100
    assert survived.taken > 0


def test_a_decoder_that_does_not_survive_is_named_with_the_input() -> None:
    def decode(data: bytes) -> int:
        return data[5]

    with pytest.raises(AssertionError, match=r"fragile does not survive [0-9a-f]*: IndexError"):
        survive("fragile", decode, [b"123456"], ProtocolError, 1000)


def test_a_decoder_that_takes_its_time_is_named() -> None:
    with pytest.raises(AssertionError, match=r"slow took .* for the inputs 0 to 500"):
        survive("slow", lambda data: sum(range(10_000)), [b"123456"], ProtocolError, 1000, chunk_cpu_s=0.01)
