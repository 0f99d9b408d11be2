"""Types of decimal arithmetic, and the rounding of DOUBLE by its decimal text."""
