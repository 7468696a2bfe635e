"""TLS and login: the steps between a socket and the first request, and the messages for their failures."""
