"""Decides: no event loop, socket, clock or randomness of its own; values, bytes and ``now`` in, values out."""
