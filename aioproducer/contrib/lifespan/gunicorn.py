"""Runs producers with gunicorn's workers that have no event loop: ``sync`` and ``gthread``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from aioproducer.contrib.lifespan.running import WARM_UP_S
from aioproducer.contrib.lifespan.worker import WorkerProducers
from aioproducer.sync import SyncProducer

__all__ = ["worker_hooks"]

Hook: TypeAlias = Callable[[Any, Any], None]


def worker_hooks(
    *producers: SyncProducer, warm_up: Iterable[str] = (), warm_up_timeout: float = WARM_UP_S
) -> tuple[Hook, Hook]:
    """Return the hooks ``post_fork`` and ``worker_exit``, which start these producers in each worker and close them.

    In ``gunicorn.conf.py``, with the producer from a module that the service imports as well::

        post_fork, worker_exit = worker_hooks(producer, warm_up=["orders"])

    Each worker warms its producers up for the topics, for up to ``warm_up_timeout`` seconds together, and then serves. If
    the warm-up raises anything but a time-out, such as `AuthenticationError`, the worker does not start, and gunicorn ends.
    Let ``close_timeout_ms`` be shorter than gunicorn's ``graceful_timeout``, or gunicorn kills a worker that still delivers.
    Workers with an event loop, such as uvicorn's, run the application's `lifespan` instead. Raises `ConfigError` without a
    producer, and for an invalid timeout.
    """
    workers = WorkerProducers(producers, tuple(warm_up), warm_up_timeout)

    def post_fork(server: Any, worker: Any) -> None:
        workers.start()

    def worker_exit(server: Any, worker: Any) -> None:
        workers.close()

    return post_fork, worker_exit
