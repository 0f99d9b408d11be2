"""Paimon tables by the official cores: Rust in the process, Java in a sidecar JVM.

Its packages import each other one way: `spark`, `maintenance`, `changelog`, `write`, `catalog`,
`java`, `read`, `schema`, `storage`.
"""
