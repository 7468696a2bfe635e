"""Compares this client with every other one that a Python program could use: `python -m benchmarks` is the command."""
