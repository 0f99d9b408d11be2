"""Spark's session, its JVM, and the Python processes that it starts."""
