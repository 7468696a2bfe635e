"""Runs producers with the worker processes of Celery."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from aioproducer.contrib.lifespan.running import WARM_UP_S
from aioproducer.contrib.lifespan.worker import WorkerProducers
from aioproducer.sync import SyncProducer

__all__ = ["run_in_workers"]


def run_in_workers(*producers: SyncProducer, warm_up: Iterable[str] = (), warm_up_timeout: float = WARM_UP_S) -> None:
    """Start these producers in each of Celery's worker processes after it was forked, and close them when it ends.

    ::

        app = Celery("shop", broker="redis://")
        producer = SyncProducer("kafka:9092")
        run_in_workers(producer, warm_up=["orders"])

    Call it at module level, next to the tasks. It connects to Celery's signals ``worker_process_init`` and
    ``worker_process_shutdown``, so it serves ``--pool prefork`` and ``solo``. The pool ``threads`` sends neither: there,
    start the producer at ``worker_init``, and close it at ``worker_shutdown``.

    Each process warms its producers up for the topics, for up to ``warm_up_timeout`` seconds together, and then runs tasks.
    Keep it below Celery's ``worker_proc_alive_timeout``, 4 s by default. What else the warm-up raises, such as
    `AuthenticationError`, is logged by Celery, and by each task that sends. Raises `ConfigError` without a producer, and
    for an invalid timeout.
    """
    workers = WorkerProducers(producers, tuple(warm_up), warm_up_timeout)
    signals = import_module("celery.signals")  # it has no types

    def start(**_: object) -> None:
        workers.start()

    def close(**_: object) -> None:
        workers.close()

    signals.worker_process_init.connect(start, weak=False)
    signals.worker_process_shutdown.connect(close, weak=False)
    signals.worker_shutdown.connect(close, weak=False)  # the solo pool does not send worker_process_shutdown
