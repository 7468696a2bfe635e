"""Removes a job from the commit log, so that its rows are written again when it runs."""

from __future__ import annotations

from aioproducer.config import ProducerConfig
from aioproducer.spark.exactly_once.commit_log import CommitLog
from aioproducer.transactions.client import TransactionCoordinatorClient

__all__ = ["forget_job"]


async def forget_job(config: ProducerConfig, topic: str, transactional_id: str, job_id: str) -> bool:
    """Write the tombstone of the job; returns whether the log had a commit of it.

    The tombstone is written in a transaction of the same id, so a running job is fenced: it fails, and none of its rows
    become visible. Raises the reason if that fails. Cancellation: the job may or may not be forgotten.
    """
    log = CommitLog(config, topic)
    async with TransactionCoordinatorClient(config) as client:
        handle = await client.init(transactional_id)
        if await log.find(transactional_id, job_id) is None:
            await client.abort(handle)
            return False
        await client.commit(handle, written=[await log.forget(handle, job_id)])
    return True
