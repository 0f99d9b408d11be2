"""Change streams of tables and views, and their subscribers.

One thread polls each table. All subscribers of a stream share one linked list of encoded events.
"""
