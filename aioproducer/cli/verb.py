"""The parts of a command-line verb, and its exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

__all__ = ["ExitCode", "Trouble", "Verb", "in_shell"]


class ExitCode(IntEnum):
    """The exit code of the process."""

    OK = 0
    BAD = 1  # it ran, and the result is bad
    UNKNOWN = 3  # it is not known whether a transaction was committed
    USAGE = 2  # it could not run, because of the arguments or the environment; argparse uses this code too
    INTERRUPTED = 130  # the shells' code for a program that Ctrl-C ended: 128 + SIGINT
    TERMINATED = 143  # 128 + SIGTERM


class Trouble(Exception):
    """An expected error that keeps a verb from running; the message says how to fix it."""


def in_shell(error: Exception) -> str:
    """The message of an error for users of a shell: with the verb that does what a function of Python does."""
    return str(error).replace("describe_options() lists", "aioproducer config lists")


class Verb(NamedTuple):
    """One verb: ``configure`` adds its arguments to a parser, ``run`` runs it and returns the exit code.

    A verb's module does slow or optional imports within ``run``, since every call of the command line imports the module.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], ExitCode]
