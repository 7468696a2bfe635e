"""Deterministic simulation: the unmodified producer on virtual time and a faulty network, against FakeCluster; see `run`."""
