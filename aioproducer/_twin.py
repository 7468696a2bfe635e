"""Chooses, for every native module, between native code and Python.

The native modules are optional when the package is built. If one is missing, or the environment variable
``AIOPRODUCER_PURE`` is 1, Python does the same, more slowly: a twin of the module or, for compression, Python's threads.
The choice between twins is made once, at import::

    if TYPE_CHECKING or not use_native("aioproducer.record._native"):
        from ._pure import RecordBatchBuilder
    else:
        from ._native import RecordBatchBuilder
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Final

__all__ = ["NATIVE_MODULES", "PURE", "implementation", "use_native"]

#: Whether the environment requests pure Python.
PURE: Final = os.environ.get("AIOPRODUCER_PURE", "").strip().lower() in {"1", "true", "yes"}

#: All native modules that a complete build has.
NATIVE_MODULES: Final = (
    "aioproducer._metadata._native",
    "aioproducer.record._native",
    "aioproducer.record._encoded_batch_native",
    "aioproducer.record._columns",
    "aioproducer.hot._native",
    "aioproducer.protocol._native",
    "aioproducer.protocol._lone_batch_native",
    "aioproducer.spark.exactly_once._row_hashes",
    *(("aioproducer.record._compression_threads",) if os.name == "posix" else ()),  # uses POSIX threads
)


def use_native(module: str) -> bool:
    """Whether to use this native module, given by its full name: it is built, and not disabled."""
    return not PURE and _why_missing(module) is None


def implementation() -> str:
    """The implementation in use, for display: ``native``, or ``pure Python`` and the reason."""
    if PURE:
        return f"pure Python: AIOPRODUCER_PURE={os.environ['AIOPRODUCER_PURE']}"
    missing = {module: why for module in NATIVE_MODULES if (why := _why_missing(module)) is not None}
    if not missing:
        return "native"
    if len(missing) == len(NATIVE_MODULES) and all(_was_not_built(*item) for item in missing.items()):
        return "pure Python: the native extension was not built"
    return "not all native: " + "; ".join(
        f"{module} was not built" if _was_not_built(module, why) else f"{module} cannot be loaded ({why})"
        for module, why in missing.items()
    )


def _was_not_built(module: str, why: ImportError) -> bool:
    return isinstance(why, ModuleNotFoundError) and why.name == module


def _why_missing(module: str) -> ImportError | None:
    try:
        import_module(module)
    except ImportError as error:
        return error
    return None
