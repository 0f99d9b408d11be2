"""How a lookup join holds its dimension: full, partial, by bucket, or on a server."""
