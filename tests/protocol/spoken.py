"""Every message in every version that is spoken, for tests that hold of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from aioproducer.protocol import Message
from aioproducer.protocol.messages import REQUESTS


def spoken() -> Iterator[tuple[type[Message], int]]:
    for request in REQUESTS.values():
        for version in range(request.versions[0], request.versions[1] + 1):
            yield request, version
            yield request.response_type, version


def for_each(messages: Iterable[tuple[type[Message], int]]) -> pytest.MarkDecorator:
    """Run a test with ``cls`` and ``version`` of each."""
    named = [pytest.param(cls, version, id=f"{cls.__name__}-{version}") for cls, version in messages]
    return pytest.mark.parametrize(("cls", "version"), named)


every_message = for_each(spoken())
