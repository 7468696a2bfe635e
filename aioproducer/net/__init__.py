"""Connections to brokers, and the metadata that is received through them."""
