"""Limits of the file formats ORC, Avro and Parquet: which values they change or lose."""
