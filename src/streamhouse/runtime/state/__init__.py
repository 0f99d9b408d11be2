"""The state of a continuous query: on disk and in the auxiliary tables of its target.

Checkpoint, lineage, pending rows, looked-up rows and retention holds.
"""
