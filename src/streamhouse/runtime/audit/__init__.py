"""Audits and repairs views: recomputes them from their lineage, by code other than the stream's."""
