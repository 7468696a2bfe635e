"""Avro values: schemas for rows, the encoder, and the schema registry."""
