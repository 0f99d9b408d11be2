"""Materialized views: their statements, and their plans: columns, types, unique key."""
