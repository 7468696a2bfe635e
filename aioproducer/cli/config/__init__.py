"""Shows a producer's options, and checks files of them."""
