"""The metrics of a producer: their names, how they are counted, and how measured numbers are distributed."""
