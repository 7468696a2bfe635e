"""CRC-32C (RFC 3720), the checksum of record batches: the C function of the package crc32c.

Importing the package takes 15 ms, a fifth of importing a producer: it imports importlib.metadata for its version, and
argparse for its command line. So its extension module is loaded without the package. If that module is not found under its
name, the package is imported.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from aioproducer.types import BytesLike

__all__ = ["crc32c"]


class _Crc32c(Protocol):
    def __call__(self, data: BytesLike, value: int = ..., /) -> int: ...


def _without_package() -> _Crc32c | None:
    package = PathFinder.find_spec("crc32c")
    spec = None if package is None else PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: _Crc32c | None = getattr(module, "crc32c", None)
    return found


def _of_package() -> _Crc32c:
    import crc32c

    return crc32c.crc32c


#: The checksum of some bytes; the optional second argument is the checksum of the bytes before them.
crc32c: Final = _without_package() or _of_package()
