"""Pipelines over HTTP: what runs in the warehouse, starting and stopping, checking scripts."""
