"""Pipelines over HTTP: listing, starting and stopping them, and checking scripts."""
