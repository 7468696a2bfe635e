"""Adapters for other libraries, each in a module of its own that needs an extra."""
