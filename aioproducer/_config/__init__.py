"""The parts that `aioproducer.config` is made of."""
