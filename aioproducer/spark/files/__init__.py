"""The files that `aioproducer load` reads and the audit compares with, as DataFrames."""
