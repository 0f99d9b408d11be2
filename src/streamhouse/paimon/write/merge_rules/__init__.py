"""What merge engines and merge functions do not accept, checked or changed in rows to be written.

Such as retractions without a meaning, sums that overflow their type, or rows of one key that must
not be merged into one file. Imports `write.rows` and the packages below `write`; only writers and
commits of `write` import it, and the sidecar's compactions follow the same rules.
"""
