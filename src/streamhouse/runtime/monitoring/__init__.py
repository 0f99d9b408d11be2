"""Monitoring of pipelines: metrics, status files and logs."""
