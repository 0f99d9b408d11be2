"""Local copies of small tables in object stores, in which the Java core compacts."""
