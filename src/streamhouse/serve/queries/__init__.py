"""Bounded reads for clients: SELECTs in processes of their own, rows of one view in threads."""
