"""The facts about a run that a comparison with another one needs: machine, versions, settings."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from aioproducer._twin import implementation

__all__ = ["about"]

_PACKAGES = ("aioproducer", "confluent-kafka", "aiokafka", "kafka-python", "uvloop", "pyarrow")
_GO_MODULES = Path(__file__).parent / "franz_go" / "go.mod"


def about(rounds: int, pure: bool) -> dict[str, str]:
    """In the order of the report."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES) + f", franz-go {_franz_go()}",
        "aioproducer runs": "pure Python, as requested" if pure else implementation(),
        "rounds": str(rounds),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _franz_go() -> str:
    found = re.search(r"twmb/franz-go v(\S+)", _GO_MODULES.read_text())
    return found.group(1) if found else "(unknown)"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or "unknown processor"
