"""The C functions of the packages lz4 and zstandard, for native code that compresses without the GIL.

The packages contain their libraries in their extension modules, or link to the system's; either way the functions can be
found there by name. Both libraries guarantee a stable API for the functions used here: ``lz4frame.h`` and the stable part of
``zstd.h``.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from .compression import Codec

if TYPE_CHECKING:
    from ctypes import CDLL

__all__ = ["find_c_functions"]

logger = logging.getLogger("aioproducer")


class _Library(NamedTuple):
    modules: tuple[str, ...]  # where to look for it
    functions: tuple[str, ...]
    version: str  # a function that returns one of these
    versions: range


_LIBRARIES: Final = {
    Codec.LZ4: _Library(
        ("lz4.frame._frame",),
        ("LZ4F_compressFrame", "LZ4F_compressFrameBound"),
        "LZ4F_getVersion",
        range(100, 101),
    ),
    Codec.ZSTD: _Library(
        ("zstandard.backend_c", "zstandard._cffi"),
        ("ZSTD_compressBound", "ZSTD_compressCCtx", "ZSTD_createCCtx", "ZSTD_freeCCtx"),
        "ZSTD_versionNumber",
        range(1_03_00, 2_00_00),
    ),
}


def find_c_functions(codec: Codec) -> dict[str, int] | None:
    """The addresses of the functions that compress with this codec, by name; valid for the life of the process.

    None if the codec has none, if its package is not installed, or was built so that they cannot be found.
    """
    library = _LIBRARIES.get(codec)
    if library is None:
        return None
    for module in library.modules:
        try:
            found = _functions_in(module, library)
        except Exception as error:  # any failure: there is a fallback
            logger.debug("%s: could not use its C functions (%r)", module, error)
            continue
        if found is not None:
            return found
    return None


def _functions_in(module: str, library: _Library) -> dict[str, int] | None:
    from ctypes import CDLL, c_uint, c_void_p, cast  # some builds of Python lack it

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    opened: CDLL = CDLL(spec.origin)
    version = opened[library.version]
    version.restype = c_uint
    if version() not in library.versions:
        return None
    return {name: cast(opened[name], c_void_p).value or 0 for name in library.functions}
