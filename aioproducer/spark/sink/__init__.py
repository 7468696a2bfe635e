"""What Spark calls to write rows: the data source, its writers on the driver, and what runs in each task."""
