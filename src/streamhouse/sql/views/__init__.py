"""Materialized views: their statements, and how their definitions are stored."""
