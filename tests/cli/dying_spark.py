"""Runs a command whose Spark dies just when it has asked the broker for something, or sends it something."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from aioproducer.testing import FakeBroker
from tests.spark.processes import java_of, kill

__all__ = ["run_until_java_dies"]


def run_until_java_dies(command: Sequence[str], broker: FakeBroker, api: str) -> subprocess.CompletedProcess[str]:
    """The result of a command whose JVM is killed while the broker holds a request of that kind."""
    held = broker.hold(api)
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            broker.wait_for(lambda broker: broker.count(api) > 0, 120)
            java = java_of(running.pid)
            assert java is not None
            kill(java)
            output, errors = running.communicate(timeout=100)
    finally:
        held.release()
    return subprocess.CompletedProcess(running.args, running.returncode, output, errors)
