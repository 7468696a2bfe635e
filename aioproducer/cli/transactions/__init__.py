"""Shows the transactions of a cluster, and aborts those that hang."""
