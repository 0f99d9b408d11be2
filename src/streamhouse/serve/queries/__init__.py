"""Bounded reads for clients: small reads of one view in threads, the rest in worker processes."""
