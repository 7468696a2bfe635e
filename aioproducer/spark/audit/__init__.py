"""`aioproducer audit`: whether a topic holds what it should, record by record."""
