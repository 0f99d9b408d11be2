"""The `datagen` connector: generated rows at a steady rate."""
