"""Compaction by the Java core, on the driver or in a Spark job."""
