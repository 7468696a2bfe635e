"""Reports missing libraries if the package was copied to a cluster without its dependencies."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["REQUIRED", "check_requirements"]

#: The modules of the package's dependencies; some have native code, which Python cannot import from a zip.
REQUIRED: Final = ("anyio", "crc32c", "lz4", "typing_extensions", "zstandard")


def check_requirements() -> None:
    """Raise ImportError with advice if one of them is missing, for example with ``--py-files``."""
    missing = [name for name in REQUIRED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"aioproducer is installed in {Path(__file__).parent.parent.parent}, but not {', '.join(missing)}, which it "
            "needs: --py-files and addPyFile do not ship libraries. Ship a whole environment, packed by venv-pack, with "
            "--archives; see 'On a cluster' in README.md of aioproducer.spark.",
            name=missing[0],
        )
