"""Lets Spark discover the data source "aioproducer": it imports every top-level package named ``pyspark_...``.

If one of them raises, the sources of all others are hidden, so this one never does; missing libraries are reported on use.
"""

from __future__ import annotations

from contextlib import suppress

__all__: list[str] = []

with suppress(Exception):
    from pyspark import __version__ as _version

    # PySpark 4.0 refuses to register() a discovered source (SPARK-51919), so it must not be discovered there.
    if not _version.startswith("4.0."):
        from aioproducer.spark import AioProducerSource as DefaultSource

        __all__ += ["DefaultSource"]
