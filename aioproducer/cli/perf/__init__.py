"""Measures throughput and latency of a cluster."""
