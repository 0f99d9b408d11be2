"""Continuous queries of views: any SELECT, refreshed when one of its tables has changed."""
