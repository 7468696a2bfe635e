"""Makes what a broker says fit to be shown: it comes from somebody who has not proved anything yet."""

from __future__ import annotations

from typing import Final

__all__ = ["shown"]

_MOST: Final = 300


def shown(text: str, *secrets: str) -> str:
    """The text in one line of printable characters, not too long, and without the ``secrets`` that it may repeat."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    cut = text[:_MOST] + ("..." if len(text) > _MOST else "")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)
