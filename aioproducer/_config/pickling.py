"""Checks whether a configuration's values can be pickled."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from typing import Final, cast

from aioproducer._config.options import OPTIONS
from aioproducer.errors import ConfigError

__all__ = ["PICKLERS", "require_picklable"]

#: The picklers that may be calling ``__reduce__``; only loaded ones can be.
PICKLERS: Final = ("cloudpickle", "pyspark.cloudpickle", "dill")


def require_picklable(name: str, value: object) -> None:
    """Raises `ConfigError` if no loaded pickler can pickle the value of option ``name``."""
    try:
        pickle.dumps(value)
    except Exception as error:  # whatever the foreign object raises
        if any(_can_pickle(pickler, value) for pickler in PICKLERS if pickler in sys.modules):
            return
        shown = OPTIONS[name].kind.show(value)
        raise ConfigError(
            f"The configuration cannot be pickled, because {name}={shown} cannot. Callables must be "
            f"importable - functions and classes of a module, no lambdas or local functions - and a connection's "
            f"ssl_context must be described by ssl_cafile, ssl_certfile and ssl_keyfile instead."
        ) from error


def _can_pickle(pickler: str, value: object) -> bool:
    dumps = cast("Callable[[object], bytes]", importlib.import_module(pickler).dumps)
    try:
        dumps(value)
    except Exception:  # whatever the foreign object raises
        return False
    return True
