"""Files of a warehouse, snapshots, splits and locks, and handles of the Rust core.

Imports nothing else of `paimon`.
"""
