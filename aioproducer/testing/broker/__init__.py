"""The fake broker: a strict, scriptable Kafka cluster inside the test process."""
