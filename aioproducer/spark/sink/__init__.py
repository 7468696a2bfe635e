"""Spark's entry points to write rows: the data source, its writers on the driver, and the code of each task."""
