"""Removes a job from the commit log, so that its rows are written when it runs again."""

from __future__ import annotations

from aioproducer.config import ProducerConfig
from aioproducer.spark.exactly_once.commit_log import CommitLog
from aioproducer.transactions.client import TransactionCoordinatorClient

__all__ = ["forget_job"]


async def forget_job(config: ProducerConfig, topic: str, transactional_id: str, job_id: str) -> bool:
    """Write the tombstone of the job; whether there was a commit of it to be forgotten.

    It is written in a transaction of the same id, so a job that runs is fenced: it fails, and nothing of it becomes visible.
    Raises what kept it from being written. Cancellation: it is forgotten or not.
    """
    log = CommitLog(config, topic)
    async with TransactionCoordinatorClient(config) as client:
        handle = await client.init(transactional_id)
        if await log.find(transactional_id, job_id) is None:
            await client.abort(handle)
            return False
        await client.commit(handle, written=[await log.forget(handle, job_id)])
    return True
