"""Decides what a transaction does next, without an event loop, clock or socket."""
