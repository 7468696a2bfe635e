"""``python -m benchmarks.spark``."""

from __future__ import annotations

from benchmarks.spark.cli import main

if __name__ == "__main__":
    main()
