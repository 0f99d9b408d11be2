"""The figures of `benchmarks/mysql_cdc.py`: the snapshot, catching up, freshness."""
