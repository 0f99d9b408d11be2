"""Many MySQL tables as one source: discovery, type mapping, and one position for all of them."""
