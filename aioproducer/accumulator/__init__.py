"""Where records wait: batches for each partition, and the memory that they share."""
