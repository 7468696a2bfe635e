"""Connections to brokers, and everything that is known through them."""
