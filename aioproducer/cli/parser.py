"""The parser of the command line: its errors are one line, with the nearest name for one that is unknown."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, cast

__all__ = ["Parser"]

_UNKNOWN_FLAG: Final = re.compile(r"unrecognized arguments: (?:.* )?(-[^\s=]+)", re.DOTALL)
_INVALID_CHOICE: Final = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
#: The metavars of sub-parsers.
_VERBS: Final = ("VERB", "ACTION")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports an error in one line, and refers to the help instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message with a suggestion, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {self._with_suggestion(message)}\nSee: {self.prog} --help\n")

    def _with_suggestion(self, message: str) -> str:
        if unknown := _UNKNOWN_FLAG.match(message):
            nearest = _nearest(unknown[1], _flags(self))
            return f"{message}. Did you mean {nearest}?" if nearest else message
        if invalid := _INVALID_CHOICE.match(message):
            argument, given, listed = invalid.groups()
            nearest = _nearest(given, re.findall(r"[\w.-]+", listed))
            if argument in _VERBS:
                message = f"unknown {argument.lower()} {given!r}"
                return f"{message}. Did you mean {nearest!r}?" if nearest else f"{message}: choose from {listed}"
            return f"{message}. Did you mean {nearest!r}?" if nearest else message
        return message


def _nearest(given: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(given, list(known), 1)), None)


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The flags of a parser and of its sub-parsers."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage] - argparse does not list them
        yield from action.option_strings
        choices: Any = action.choices
        if isinstance(choices, Mapping):  # sub-parsers by name
            for each in cast("Mapping[str, argparse.ArgumentParser]", choices).values():
                yield from _flags(each)
