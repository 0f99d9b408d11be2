"""Draws a script's graph of tables and queries, as text or as SVG; runs nothing."""
