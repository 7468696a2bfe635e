"""Makes a broker's text safe to show: the broker is not authenticated yet."""

from __future__ import annotations

from typing import Final

__all__ = ["shown"]

_MOST: Final = 300


def shown(text: str, *secrets: str) -> str:
    """Return the text as one line of printable characters, not too long, without the ``secrets`` that it may repeat."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    cut = text[:_MOST] + ("..." if len(text) > _MOST else "")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)
