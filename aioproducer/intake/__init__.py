"""How records get in: one by one, many at a time, and as tables."""
