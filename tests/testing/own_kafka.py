"""A real Kafka of one test's own, set up as the fixture that all tests share is not."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from tests.needs import not_here

__all__ = ["own_kafka"]


@contextmanager
def own_kafka(version: str, **setting: Any) -> Generator[KafkaCluster, None, None]:
    """One broker of that version; ``setting`` is what `KafkaCluster` takes."""
    try:
        kafka = KafkaCluster(version, **setting).open()
    except KafkaUnavailable as error:
        not_here(str(error))
    with closing(kafka):
        yield kafka
