"""The parts of `aioproducer.config`."""
