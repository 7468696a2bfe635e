"""Shows a status page in a terminal."""
