"""Where Spark finds the data source "aioproducer" by itself: it imports every top-level package named ``pyspark_...``.

One of them that raises hides the sources of all others, so this one never does; what is missing is said when it is used.
"""

from __future__ import annotations

from contextlib import suppress

__all__: list[str] = []

with suppress(Exception):
    from aioproducer.spark import AioProducerSource as DefaultSource

    __all__ += ["DefaultSource"]
