"""librdkafka's mock cluster: costs little, so that it is the clients that are measured, and believes everything."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

from benchmarks import CHECKOUT
from benchmarks.unavailable import Unavailable

__all__ = ["MockCluster"]


class MockCluster:
    """One mock broker in its own process."""

    title = "librdkafka's mock cluster"
    is_mock = True

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.brokers.mock_process"],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._servers = self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def servers(self) -> str:
        """``host:port``."""
        return self._servers

    @property
    def pid(self) -> int | None:
        """Its process."""
        return self._process.pid

    def create_topic(self, name: str, partitions: int) -> None:
        """Make it; it has leaders at once."""
        self._report(f"create {name} {partitions}")

    def delete_topic(self, name: str) -> None:
        """Give its memory back."""
        self._report(f"delete {name}")

    def _report(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._line()
        if answer != "ok":
            raise RuntimeError(f"The mock cluster refuses: {answer}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable("The mock cluster ended; `python -m benchmarks.brokers.mock_process` says why.")
        return line.strip()
