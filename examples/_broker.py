"""The broker of the examples: KAFKA_BOOTSTRAP_SERVERS or, without it, a fake broker inside the program."""

from __future__ import annotations

import atexit
import os

from aioproducer.testing import FakeBroker


def bootstrap_servers() -> str:
    """The addresses of the brokers; topics are created when they are first written to."""
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        return given
    broker = FakeBroker(num_partitions=3)
    broker.start()
    atexit.register(broker.close)
    print("(KAFKA_BOOTSTRAP_SERVERS is not set: using a fake broker in this process)")
    return broker.bootstrap_servers
