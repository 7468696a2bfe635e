"""Examines, step by step, whether a producer would work."""
