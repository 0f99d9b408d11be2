"""Whole MySQL databases as Paimon tables: one Spark query that follows many tables."""
