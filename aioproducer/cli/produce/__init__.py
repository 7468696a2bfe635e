"""Sends lines, tables and whole files."""
