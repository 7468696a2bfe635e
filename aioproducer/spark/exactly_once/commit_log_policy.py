"""Says which configurations of a topic make Kafka forget records, so that it cannot be a commit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CONFIGS", "forgets"]

_POLICY: Final = "cleanup.policy"

#: What limits how long, or how much, a topic keeps, and the value with which it keeps all.
_RETENTION: Final[Mapping[str, str]] = {"retention.ms": "-1", "retention.bytes": "-1"}

#: What `forgets` looks at.
CONFIGS: Final = (_POLICY, *_RETENTION)


def forgets(configs: Mapping[str, str]) -> bool:
    """Whether records go after a time, or above a size. A topic of which nothing is known keeps all."""
    policies = {policy.strip() for policy in configs.get(_POLICY, "compact").split(",")}
    return "delete" in policies and any(configs.get(name) != value for name, value in _RETENTION.items())
