"""`aioproducer audit`: checks whether a topic holds what it should, record by record."""
