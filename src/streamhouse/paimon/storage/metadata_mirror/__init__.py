"""Copies of metadata of tables in object stores, which the Rust core reads without requests."""
