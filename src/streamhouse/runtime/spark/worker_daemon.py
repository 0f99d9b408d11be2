"""Spark's Python daemon, which imports our libraries before it forks, so that workers start fast.

Spark starts one daemon for the tasks, and one for each kind of planning, whose only worker needs
few libraries.
"""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module

from pyspark.daemon import manager

from streamhouse.runtime.spark.worker_parent import TASK_LIBRARIES

_PLANNING = "pyspark.sql.worker."
_COLLECT_AFTER = 200_000
"""Objects; by default, Python looks at all young ones after 700."""


def load(arguments: Sequence[str]) -> None:
    """Import what the workers need; `arguments` of the daemon name the module of its workers."""
    if not any(word.startswith(_PLANNING) for word in arguments):
        for name in TASK_LIBRARIES:
            import_module(name)
    gc.freeze()
    # Tasks make thousands of objects a batch, and no cycles. Spark collects garbage after each.
    gc.set_threshold(_COLLECT_AFTER)


if __name__ == "__main__":
    load(sys.argv[1:])
    manager()
