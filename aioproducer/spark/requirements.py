"""Says what is missing where the package was copied to a cluster without the libraries that it needs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["REQUIRED", "check_requirements"]

#: The modules of the package's dependencies; of some there is native code, which Python cannot import from a zip.
REQUIRED: Final = ("anyio", "crc32c", "lz4", "typing_extensions", "zstandard")


def check_requirements() -> None:
    """Raise ImportError with the way on where one of them is not there, as with ``--py-files``."""
    missing = [name for name in REQUIRED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"aioproducer is here, in {Path(__file__).parent.parent.parent}, but not {', '.join(missing)}, which it needs: "
            "--py-files and addPyFile ship no libraries. Ship a whole environment, packed by venv-pack, with --archives; "
            "README.md of aioproducer.spark, 'On a cluster', says how.",
            name=missing[0],
        )
