"""Differences between the Rust core's reads and the Java core's (`limits`), and workarounds."""
