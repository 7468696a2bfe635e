"""One transaction for all tasks of a batch: its coordinator, and how a batch that was already committed is detected."""
