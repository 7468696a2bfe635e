"""Real Kafka for tests: runs brokers from their jars on this machine, for as long as a test needs them."""

from __future__ import annotations

from aioproducer.testing.kafka.cluster import Kafka, KafkaCluster
from aioproducer.testing.kafka.jars import KafkaJars, KafkaUnavailable
from aioproducer.testing.kafka.node import KafkaStartError
from aioproducer.testing.kafka.properties import CONTROLLER_ID

__all__ = ["CONTROLLER_ID", "Kafka", "KafkaCluster", "KafkaJars", "KafkaStartError", "KafkaUnavailable"]
