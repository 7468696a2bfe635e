"""The files that `aioproducer load` reads and `aioproducer audit` compares with, as DataFrames."""
