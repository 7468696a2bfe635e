"""What a verb of the command line is made of, and how it tells its outcome to the shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

__all__ = ["ExitCode", "Trouble", "Verb"]


class ExitCode(IntEnum):
    """What the shell is told."""

    OK = 0
    BAD = 1  # it ran, and the verdict is bad
    USAGE = 2  # it could not run: the arguments or the environment are to blame; argparse's number for it, too
    INTERRUPTED = 130  # what shells give to a program that Ctrl-C ended: 128 + SIGINT


class Trouble(Exception):
    """Something expected that keeps a verb from running; the message is a sentence with the way out."""


class Verb(NamedTuple):
    """One verb: ``configure`` adds its arguments to a parser, ``run`` does it and returns the exit code.

    A module of a verb imports what is slow or optional within ``run``, since every call of the command line imports it.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], ExitCode]
