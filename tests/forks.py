"""Checks in a forked child."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable

__all__ = ["in_a_fork"]


def in_a_fork(check: Callable[[], None]) -> None:
    """Run the check in a forked child, and fail with what it printed if it failed."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # a worker of pytest-xdist has a second thread; as an error, 3.15 raises it
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as output:
        said = output.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, said
