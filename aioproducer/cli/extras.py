"""Optional packages: whether they are installed, and the error if they are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from aioproducer.cli.verb import Trouble

__all__ = ["is_installed", "loop_factory", "require"]


def is_installed(module: str) -> bool:
    """Whether the module can be imported; does not import it."""
    try:
        return find_spec(module) is not None
    except ValueError:  # a stand-in without a spec is in sys.modules
        return True


def require(purpose: str, modules: Sequence[str], extra: str) -> None:
    """Raise Trouble that names the missing modules and the pip command that installs them."""
    missing = [module for module in modules if not is_installed(module)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise Trouble(
            f"{purpose} needs {' and '.join(missing)}, which {verb} not installed. "
            f"Install with: pip install 'aioproducer[{extra}]'"
        )


def loop_factory(want_uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """Factory of the event loop: uvloop's if it is wanted and installed, else asyncio's."""
    if want_uvloop and is_installed("uvloop"):
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop
