"""Views proved and repaired: their queries' past computed again by other code."""
