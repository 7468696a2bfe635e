"""Describes the metrics of an application that its producer pushes to brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["ApplicationMetric"]


@dataclass(frozen=True, slots=True)
class ApplicationMetric:
    """A number of the application that its producer pushes to brokers which subscribe to it (KIP-1076).

    ``read()`` returns the number; it is plain, and called in the producer's event loop. A total only grows, and may be
    reported by its growth. ``unit`` is one of UCUM's, such as ``ms`` or ``By``.
    """

    name: str
    read: Callable[[], float]
    is_total: bool = False
    unit: str = ""
    meaning: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
