"""The tasks of a micro-batch, which run on executors: read, join, aggregate, write.

They return commit messages to the driver. Imports `dimensions`, `spark_data_source` (the type of
results), `runtime.query_operator`, `runtime.state` and the packages below `runtime`; the other
modules of `runtime.streaming` import it.
"""
