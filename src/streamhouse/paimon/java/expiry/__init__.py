"""What the Java core deletes: files that no branch needs, and partitions that expire."""
