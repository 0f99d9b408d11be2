"""Continuous queries of views: any SELECT, recomputed when one of its tables has changed."""
