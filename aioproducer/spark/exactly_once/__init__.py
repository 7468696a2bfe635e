"""One transaction for all tasks of a batch: who begins and commits it, and what tells a batch that was committed before."""
