"""The micro-batches of a sync: planned on the driver, written by tasks, committed per table.

Imports `evolution`, `mapping`, `options` and `reload` of the sync.
"""
