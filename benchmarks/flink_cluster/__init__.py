"""Flink and Paimon on this machine, as the stack to compare with."""
