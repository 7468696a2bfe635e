"""Values in Avro: schemas of rows, their encoder, and the schema registry."""
