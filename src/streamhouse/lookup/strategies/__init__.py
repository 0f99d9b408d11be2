"""Lookup join strategies: full cache, partial cache, bucket shuffle, and lookups on a server."""
