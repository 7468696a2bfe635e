"""The sink's options, as Spark passes them."""
