"""`aioproducer load`: writes files to a topic, slice by slice, and resumes where it stopped."""
