"""The command ``aioproducer``: finds the verb, runs it, and turns expected trouble into one sentence and an exit code.

It imports what it needs when it runs, so that there is somebody to catch Ctrl-C while that takes its time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verb that the arguments (None: of this process) name, and answer the exit code.

    0: all is well; 1: it ran, and the verdict is bad; 2: it could not run; 130: Ctrl-C. Raises SystemExit as argparse
    does: for ``--help``, ``--version``, and with code 2 for wrong arguments.
    """
    try:
        from aioproducer.cli.verbs import run_verb

        return run_verb(arguments)
    except KeyboardInterrupt:
        print("aioproducer: interrupted.", file=sys.stderr)
        return 130  # ExitCode.INTERRUPTED, of a module that may not be there yet
