"""The `print` connector: rows on the standard output of the process that runs the script."""
