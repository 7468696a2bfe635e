"""Finds in what Spark raises the sentence that our own code said in a task; the rest are stack traces of two languages."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["cause_of"]

_OURS: Final = re.compile(r"^\s*aioproducer\.[\w.]+: (.+)$", re.MULTILINE)


def cause_of(error: BaseException) -> str:
    """The last exception of ours that the text names, else its first line."""
    text = str(error).strip()
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    return text.splitlines()[0] if text else type(error).__name__
