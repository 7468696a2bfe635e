"""What a transaction does next, decided without a loop, a clock or a socket."""
