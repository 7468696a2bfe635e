"""The Spark session of the command line, its progress, and its error messages."""
