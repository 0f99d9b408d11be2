"""The `filesystem` connector: files of JSON, CSV or Parquet in a folder, also partitioned."""
