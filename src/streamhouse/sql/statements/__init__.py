"""A script as a list of statements, each read into a record of `plan`."""
