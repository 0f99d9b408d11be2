"""The `blackhole` connector: takes rows and keeps none."""
