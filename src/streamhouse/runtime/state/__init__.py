"""What a continuous query keeps on disk and in the tables beside its target.

Checkpoint, lineage, pending rows, looked-up rows, distinct counts and retention holds.
"""
