"""Lets the requests of a group's members wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioproducer.testing.broker.consumer_group import Joined, Parked, Synced
from aioproducer.testing.broker.request import AnyResponse, NotYet, RequestContext

__all__ = ["answer_or_wait"]

_LONGEST = 60.0


def answer_or_wait(
    context: RequestContext, group_id: str, parked: Parked, encode: Callable[[Any], AnyResponse]
) -> AnyResponse | NotYet:
    """The answer, or a wait for it that lasts until something happens to the group by itself."""
    coordinator = context.cluster.group_coordinator
    coordinator.expire(context.now_ms)
    answer: Joined | Synced | None = parked.answer
    if answer is not None:
        return encode(answer)

    def again(later: RequestContext) -> AnyResponse | NotYet:
        return answer_or_wait(later, group_id, parked, encode)

    left = (coordinator.next_deadline_ms(group_id) - context.now_ms) / 1000
    return NotYet(min(max(left, 0.0), _LONGEST), lambda: parked.answer is not None, again)
