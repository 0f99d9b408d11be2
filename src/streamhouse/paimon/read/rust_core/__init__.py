"""What the Rust core reads otherwise than Paimon's Java core (`limits`), and the workarounds."""
