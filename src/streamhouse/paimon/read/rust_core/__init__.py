"""Workarounds for differences of the Rust core from the Java core (`tests/core_differences.py`)."""
