"""Followed tables and views, and the readers of their changes.

One follower a table; all its readers share a chain of encoded events.
"""
