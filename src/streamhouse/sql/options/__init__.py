"""Options that scripts set (SET, WITH, CREATE CATALOG), also by names of earlier releases."""
