"""The `faker` connector: generated rows of names, addresses, numbers and times, by expressions."""
