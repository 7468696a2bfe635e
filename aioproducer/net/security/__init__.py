"""TLS and logging in: what stands between a socket and the first request, and the words for where it fails."""
