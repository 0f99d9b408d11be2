"""The `datagen` connector: rows that are made up, at a steady rate."""
