"""Streamhouse: real-time data views on PySpark and Apache Paimon, from a SQL script."""

from __future__ import annotations

__version__ = "0.1.0"
