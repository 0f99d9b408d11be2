"""Spark's Python daemon, which imports our libraries before it forks workers."""

import gc
from importlib import import_module

from pyspark.daemon import manager

from streamhouse.runtime.spark.worker_parent import TASK_LIBRARIES

_COLLECT_AFTER = 200_000
"""Objects; by default, Python looks at all young ones after 700."""


def load() -> None:
    """Import what the workers need."""
    for name in TASK_LIBRARIES:
        import_module(name)
    gc.freeze()
    # Tasks make thousands of objects a batch, and no cycles. Spark collects garbage after each.
    gc.set_threshold(_COLLECT_AFTER)


if __name__ == "__main__":
    load()
    manager()
