"""Accepts records: one by one, many at a time, and as tables."""
