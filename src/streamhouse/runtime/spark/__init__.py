"""The Spark session, its JVM, and the Python workers that Spark starts."""
