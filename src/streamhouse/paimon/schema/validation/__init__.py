"""What the definition of a table must satisfy, checked before it is stored (decision 238)."""
