"""Differences between the reads of the Rust core and the Java core (`differences`), workarounds."""
