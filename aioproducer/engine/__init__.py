"""What runs while a producer is open: the engine and its sender, in one event loop."""
