"""`aioproducer load`: brings files into a topic, slice by slice, and goes on where it was stopped."""
