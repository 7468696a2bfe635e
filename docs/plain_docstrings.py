"""Docstrings as Markdown: the ``::`` that introduces an example in them is not part of the text."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["PlainDocstrings"]


class PlainDocstrings(griffe.Extension):
    """Takes the marks of reStructuredText out of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe with each object that it has read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^ *::\n", "", obj.docstring.value, flags=re.MULTILINE)
