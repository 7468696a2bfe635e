"""Chaos on real Kafka: brokers that are killed, paused and cut off while programs send, and a judge of the result."""
