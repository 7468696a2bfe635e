"""Shared by all parts that run in an event loop: a lifetime, a log, deadlines, the user's tasks, a thread."""
