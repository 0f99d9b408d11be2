"""A script's session: catalogs, views, functions and settings."""
