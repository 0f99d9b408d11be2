"""The format `json`: exact in every value, fast where a column needs no conversion by value."""
