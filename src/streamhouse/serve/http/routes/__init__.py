"""The HTTP routes of `streamhouse serve`, one module per part of the API."""
