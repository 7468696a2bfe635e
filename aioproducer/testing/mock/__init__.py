"""The parts of `MockProducer`: a producer whose cluster is an object in the same process."""
