"""The micro-batches of a sync: planned on the driver, written by tasks, committed per table.

Imports `evolution`, `mapping`, `options`, `reload` and `tables` of the sync.
"""
