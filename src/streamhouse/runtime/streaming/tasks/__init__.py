"""The tasks of a micro-batch, which run on executors: read, join, aggregate, write.

They return commit messages to the driver. Imports `dimensions`, `runtime.query_operator`,
`runtime.state` and the packages below `runtime`; the other modules of `runtime.streaming` import
it.
"""
