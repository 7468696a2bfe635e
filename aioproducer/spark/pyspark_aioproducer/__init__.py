"""Where Spark finds the data source "aioproducer" by itself: it imports every top-level package named ``pyspark_...``.

One of them that raises hides the sources of all others, so this one never does; what is missing is said when it is used.
"""

from __future__ import annotations

from contextlib import suppress

__all__: list[str] = []

with suppress(Exception):
    from pyspark import __version__ as _version

    # PySpark 4.0 refuses to register() what it has found by itself (SPARK-51919), so there it is not to be found.
    if not _version.startswith("4.0."):
        from aioproducer.spark import AioProducerSource as DefaultSource

        __all__ += ["DefaultSource"]
