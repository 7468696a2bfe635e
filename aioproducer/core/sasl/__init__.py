"""SASL logins: what to send to the broker and what its answers mean, without a socket, clock or randomness."""
