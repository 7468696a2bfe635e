"""The sink's options, as Spark hands them over."""
