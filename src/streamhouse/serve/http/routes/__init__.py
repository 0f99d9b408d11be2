"""The routes of `streamhouse serve`, one module a part."""
