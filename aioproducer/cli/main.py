"""The command ``aioproducer``: finds the verb, runs it, and turns expected errors into one sentence and an exit code.

It imports its dependencies in main(), so that Ctrl-C during a slow import is caught too.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verb that the arguments (None: of this process) name, and return the exit code.

    0: success; 1: it ran and the result is bad; 2: it could not run; 130: Ctrl-C. Raises SystemExit as argparse does:
    for ``--help``, ``--version``, and with code 2 for wrong arguments.
    """
    _open_standard_streams()
    try:
        from aioproducer.cli.verbs import run_verb

        return run_verb(arguments)
    except KeyboardInterrupt:
        print("aioproducer: interrupted.", file=sys.stderr)
        return 130  # ExitCode.INTERRUPTED, whose module may not be imported yet


def _open_standard_streams() -> None:
    """Give those that the shell has closed to nothing: otherwise a socket would get their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
