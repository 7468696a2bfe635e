"""The Spark sink beside what PySpark users write without it, in one Spark session, on the same DataFrame.

python -m benchmarks.spark            # prints tables, judges the targets, writes benchmarks/report/spark.md and spark.json
"""
