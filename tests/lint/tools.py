"""Runs a tool over the whole repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["check"]

ROOT = Path(__file__).parent.parent.parent


def check(*command: str) -> None:
    """Run the tool, which is a program of this environment; what it complains about fails the test."""
    tool = str(Path(sys.executable).parent / command[0])
    done = subprocess.run([tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
