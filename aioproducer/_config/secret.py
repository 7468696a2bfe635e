"""Text that is never shown."""

from __future__ import annotations

from aioproducer.errors import ConfigError

__all__ = ["Secret"]


class Secret:
    """A password or a key that is never shown: ``str``, ``repr`` and ``format`` all return ``Secret('***')``.

    `reveal` returns the text. Pickling carries it in the clear, because another process could not use the configuration
    otherwise: treat a pickled configuration like the password itself.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | Secret) -> None:
        self._text = text.reveal() if isinstance(text, Secret) else text
        if not isinstance(self._text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller without types
            raise ConfigError(
                f"A Secret is created from a str; the given value is of type {type(self._text).__name__}."
            )

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # imports OpenSSL's hashes, 1 ms that a producer without secrets need not spend

        return compare_digest(self._text.encode(errors="surrogatepass"), other._text.encode(errors="surrogatepass"))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)
