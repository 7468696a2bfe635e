"""Makes the decisions, without an event loop, socket, clock or randomness: values, bytes and ``now`` in, values out."""
