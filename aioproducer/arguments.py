"""Checks the arguments of calls, before anything is done with them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from math import inf
from numbers import Real
from sys import float_info
from typing import Final, cast, overload

from aioproducer.errors import ConfigError, InvalidRecord, KafkaError
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "check_hook",
    "check_plain_hook",
    "check_timeout",
    "checked_group",
    "checked_name",
    "checked_offsets",
    "checked_partition",
    "checked_topic",
    "is_async",
    "is_timeout",
]

#: Kafka's rule for the names of topics (org.apache.kafka.common.internals.Topic).
_LEGAL_TOPIC: Final = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}\Z")


def checked_topic(topic: object, refusal: Callable[[str], KafkaError]) -> str:
    """The topic, if its name is valid; otherwise raises ``refusal(reason)``."""
    if isinstance(topic, str) and _LEGAL_TOPIC.match(topic):
        return topic
    raise refusal(
        f"Invalid topic={topic!r}: must be 1 to 249 of the characters a-z, A-Z, 0-9, '.', "
        "'_' and '-', and neither '.' nor '..'."
    )


def is_timeout(timeout: object) -> bool:
    """Whether it is a number of seconds that can be waited for, including infinity; True does not count as a number."""
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        return False
    seconds = cast("float", timeout)
    return 0 <= seconds <= float_info.max or seconds == inf


@overload
def check_timeout(timeout: float, refusal: Callable[[str], KafkaError]) -> float: ...


@overload
def check_timeout(timeout: float | None, refusal: Callable[[str], KafkaError]) -> float | None: ...


def check_timeout(timeout: float | None, refusal: Callable[[str], KafkaError]) -> float | None:
    """The timeout in seconds, or None if none was given; raises ``refusal(reason)`` if it is invalid."""
    if timeout is None:
        return None
    if not is_timeout(timeout):
        raise refusal(f"Invalid timeout={timeout!r}: must be a number of seconds >= 0, or None for the default.")
    return float(timeout)


def check_hook(name: str, hook: object, call: str) -> None:
    """Raise `InvalidRecord` if it is neither None nor a callable; ``call`` shows how it would be called."""
    if hook is not None and not callable(hook):
        raise InvalidRecord(f"Invalid {name}={hook!r}: must be a function that takes {call}, or None.")


def check_plain_hook(name: str, hook: object, call: str) -> None:
    """The same, and raise if it is async: what it returns is used at once, or not at all."""
    check_hook(name, hook, call)
    if is_async(hook):
        raise InvalidRecord(
            f"{name}={hook!r} is async, but nothing would await it; pass a plain function that takes {call}. It may start a "
            "task."
        )


def is_async(function: object) -> bool:
    """Whether calling it would return a coroutine, as far as can be determined without calling it."""
    if inspect.iscoroutinefunction(function):
        return True
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions, each with its metadata and epoch. Raises `ConfigError` for an invalid one."""
    _check_mapping(offsets)
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in offsets.items():
        whole = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        where = checked_partition("offsets", partition)
        if not _is_whole(whole.offset, 0, _INT64_MAX):
            raise ConfigError(f"Invalid offsets[{partition!r}]={offset!r}: an offset must be an integer >= 0.")
        if not (_is_text(whole.metadata) and _is_whole(whole.leader_epoch, -1, _INT32_MAX)):
            raise ConfigError(
                f"Invalid offsets[{partition!r}]={offset!r}: metadata must be text of at most {_TEXT_MAX} bytes, and "
                "leader_epoch an integer, -1 if it is unknown."
            )
        checked[where] = whole
    return checked


def _check_mapping(offsets: object) -> None:
    if not isinstance(offsets, Mapping):  # other clients take lists
        raise ConfigError(
            f"offsets is of type {type(offsets).__name__}; it must be a mapping such as {{TopicPartition('orders', 0): 42}}."
        )


def checked_partition(argument: str, partition: TopicPartition) -> TopicPartition:
    """The partition in this argument. Raises `ConfigError` if it is invalid."""
    if not _is_partition(partition):
        raise ConfigError(f"Invalid {argument}[{partition!r}]: the partition must be (topic, number).")
    return TopicPartition(*partition)


def checked_name(argument: str, name: str) -> str:
    """The name in this argument. Raises `ConfigError` if it is invalid."""
    if not (_is_text(name) and name):
        raise ConfigError(f"Invalid {argument}={name!r}: must be text of 1 to {_TEXT_MAX} bytes.")
    return name


def checked_group(group: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """The whole metadata of a group. Raises `ConfigError` if it has no name, or if a value cannot be sent."""
    whole = group if isinstance(group, ConsumerGroupMetadata) else ConsumerGroupMetadata(group)
    if not (_is_text(whole.group_id) and whole.group_id):
        raise ConfigError(f"Invalid group={group!r}: a consumer group must have a name.")
    if not (
        _is_whole(whole.generation_id, -1, _INT32_MAX)
        and _is_text(whole.member_id)
        and (whole.group_instance_id is None or _is_text(whole.group_instance_id))
    ):
        raise ConfigError(
            f"Invalid group={group!r}: generation_id must be an integer, -1 if there is none, and member_id and "
            "group_instance_id must be text."
        )
    return whole


# A value that cannot be encoded must be refused here: in the task that talks to the coordinator it would end the producer.
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_TEXT_MAX = 2**15 - 1


def _is_whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return len(value.encode()) <= _TEXT_MAX
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _is_partition(partition: object) -> bool:
    if not isinstance(partition, tuple) or len(cast("tuple[object, ...]", partition)) != 2:
        return False
    topic, number = cast("tuple[object, object]", partition)
    return _is_text(topic) and bool(topic) and _is_whole(number, 0, _INT32_MAX)
