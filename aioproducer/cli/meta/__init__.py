"""Shows brokers, topics and partitions."""
