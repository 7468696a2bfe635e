"""Logging in with SASL: what is said to the broker and what its answers mean, without a socket, a clock or randomness."""
