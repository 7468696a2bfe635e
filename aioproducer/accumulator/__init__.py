"""The buffer of waiting records: batches for each partition, and the memory that they share."""
