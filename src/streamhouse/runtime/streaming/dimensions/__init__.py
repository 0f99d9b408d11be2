"""The dimensions of a continuous query: which version a batch joins, preloads, open tables."""
