"""The revenue demo: a view sums up streaming orders by country, with customers from MySQL."""
