"""confluent-kafka's `KafkaError` and `KafkaException`, for programs that catch them.

If the program has imported ``confluent_kafka`` when an error is created, the error is an instance of confluent-kafka's class
of that name as well: ``except confluent_kafka.KafkaException`` catches it, and ``==`` compares codes. confluent-kafka itself
is never imported here, and need not be installed.

``__cause__`` of a `KafkaException` is aioproducer's own error, if there is one: `NotWritten` or `Unknown`, and why.
"""

from __future__ import annotations

import sys
from typing import Any, Final, cast

from aioproducer.contrib.confluent.codes import TEXTS, Codes

__all__ = ["KafkaError", "KafkaException", "error_of", "exception_of"]

_NAMES: Final = {code: name for name, code in vars(Codes).items() if isinstance(code, int)}


class KafkaError(Codes):
    """An error code with a text; not an exception. Equal to other errors with the same code, and to the code."""

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = error
        self._reason = reason
        self._flags = (fatal, retriable, txn_requires_abort)

    def code(self) -> int:
        """Return the code: a constant of this class."""
        return self._code

    def name(self) -> str:
        """Return the name of the code."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """Return the text: the reason, or a description of the code."""
        return self._reason or TEXTS.get(self._code, f"Err-{self._code}?")

    def fatal(self) -> bool:
        """Return whether the producer can send nothing any more."""
        return self._flags[0]

    def retriable(self) -> bool:
        """Return whether the same call may succeed later."""
        return self._flags[1]

    def txn_requires_abort(self) -> bool:
        """Return whether the transaction must be aborted; a new one may succeed."""
        return self._flags[2]

    def __repr__(self) -> str:  # type: ignore[valid-type]  # the method str() has the name of the type
        fatal = "FATAL," if self.fatal() else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code == code

    def __ne__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code != code

    def __lt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code < code

    def __gt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code > code

    def __hash__(self) -> int:
        return hash(self._code)

    def __reduce__(self) -> tuple[object, ...]:
        return error_of, (self._code, self._reason, *self._flags)


class KafkaException(Exception):
    """An operation failed; ``args[0]`` is the `KafkaError`."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, self.args


def _code_of(other: object) -> int | None:
    if isinstance(other, int):
        return other
    code: Any = getattr(other, "code", None)
    return cast("int", code()) if callable(code) else None


#: The subclasses of our class and confluent-kafka's, by these two.
_JOINED: Final[dict[tuple[type, type], type[Any]]] = {}


def error_of(
    code: int,
    reason: str | None = None,
    fatal: bool = False,
    retriable: bool = False,
    txn_requires_abort: bool = False,
) -> KafkaError:
    """Return an error; also of confluent-kafka's class if ``confluent_kafka`` is imported."""
    found: KafkaError = _in_both_hierarchies(KafkaError)(code, reason, fatal, retriable, txn_requires_abort)
    return found


def exception_of(error: KafkaError, cause: BaseException | None = None) -> KafkaException:
    """Return the exception for an error; also of confluent-kafka's class if ``confluent_kafka`` is imported."""
    found: KafkaException = _in_both_hierarchies(KafkaException)(error)
    found.__cause__ = cause
    return found


def _restored(*args: object) -> KafkaException:
    found: KafkaException = _in_both_hierarchies(KafkaException)(*args)
    return found


def _in_both_hierarchies(kind: type[Any]) -> type[Any]:
    theirs: Any = getattr(sys.modules.get("confluent_kafka"), kind.__name__, None)
    if theirs is None:
        return kind
    joined = _JOINED.get((kind, theirs))
    if joined is None:
        joined = _JOINED[kind, theirs] = _subclass_of_both(kind, theirs)
    return joined


def _subclass_of_both(kind: type[Any], theirs: type[Any]) -> type[Any]:
    """A class with the common name of both; its instances are pickled and copied by that name."""

    def initialize(self: Any, *args: Any) -> None:
        theirs.__init__(self, *args)  # its C code compares the code that it stores itself
        kind.__init__(self, *args)

    namespace = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__init__": initialize}
    joined: type[Any] = type(kind.__name__, (kind, theirs), namespace)
    return joined
