"""The command ``aioproducer load`` where Spark dies on the way; what it loads is tested beside `aioproducer.spark`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.testing import FakeBroker
from tests.spark.local_spark import need
from tests.spark.processes import command_of, kill, parent_of, processes


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_of_a_spark_that_dies_while_it_writes_it_is_said_that_rows_may_be_there(
    broker: FakeBroker, tmp_path: Path
) -> None:
    need()
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    what = [str(lines), "--format", "text", "--value-format", "raw", "--topic", "orders"]
    command = [sys.executable, "-m", "aioproducer", "load", *what, "--bootstrap-servers", broker.bootstrap_servers]
    held = broker.hold("Produce")
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            broker.wait_for(lambda broker: broker.count("Produce") > 0, 120)
            [java] = [pid for pid in processes() if parent_of(pid) == running.pid and "java" in command_of(pid)]
            kill(java)
            _, errors = running.communicate(timeout=100)
    finally:
        held.release()

    assert running.returncode == 1, errors
    assert "Some of the rows may be in the topic already" in errors.splitlines()[-1]
    assert "Traceback" not in errors
