"""A table or a view as its state, then as each of its changes, straight from the warehouse."""
