"""Detects topic configurations that make Kafka delete records, which a commit log must not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CONFIGS", "forgets"]

_POLICY: Final = "cleanup.policy"

#: Configurations that limit the age or size of a topic, and the value that keeps everything.
_RETENTION: Final[Mapping[str, str]] = {"retention.ms": "-1", "retention.bytes": "-1"}

#: The configurations that `forgets` checks.
CONFIGS: Final = (_POLICY, *_RETENTION)


def forgets(configs: Mapping[str, str]) -> bool:
    """Whether records are deleted by age or size. A topic without known configurations is taken to keep everything."""
    policies = {policy.strip() for policy in configs.get(_POLICY, "compact").split(",")}
    return "delete" in policies and any(configs.get(name) != value for name, value in _RETENTION.items())
