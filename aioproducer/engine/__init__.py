"""The running part of an open producer: the engine and its sender, in one event loop."""
