"""A program that is a Spark Connect server on this machine until its standard input ends.

``python -m tests.spark.connect_server`` prints its address on standard output, as ``sc://...``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import aioproducer
from tests.spark.local_spark import start

_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


def main() -> None:
    """Run the server. The data source is not registered: it is found where an installed aioproducer has it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(aioproducer.__file__).parent.parent), *_python_path()])
    jvm = start(**_SETTINGS).sparkContext._jvm
    service: Any = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    port = service.localPort()
    sys.stdout.write(f"sc://127.0.0.1:{port}\n")
    sys.stdout.flush()
    sys.stdin.read()


def _python_path() -> list[str]:
    return list(filter(None, [os.environ.get("PYTHONPATH")]))


if __name__ == "__main__":
    main()
