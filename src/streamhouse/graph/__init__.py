"""A script as a graph of its tables and queries, drawn as text or as SVG; runs nothing."""
