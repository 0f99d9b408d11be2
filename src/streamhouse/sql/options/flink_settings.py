"""Flink settings that are accepted and have no effect here.

A script written for a Flink cluster tunes state, restarts and operators. Here such a setting is
either always in effect, or there is nothing that it could tune, so it is accepted with a notice. A
setting that would change results is an error, unless its value is the behaviour here.
"""

from __future__ import annotations

from streamhouse.close_matches import closest
from streamhouse.errors import OptionError

_STATE = "queries keep their state in tables"
_CLUSTER = "all queries run in one Spark driver"
_PLANNER = "there is no Flink planner"
_CONSOLE = "it configures Flink's SQL client"
_ONCE = "each batch is committed exactly once, and a query resumes from its own checkpoint"

_FAMILIES = {
    "sql-client.": _CONSOLE,
    "state.": _STATE,
    "execution.checkpointing.": _ONCE,
    "restart-strategy": _ONCE,
    "table.exec.state.": _STATE,
    "table.exec.mini-batch.": "rows of a batch are always processed together",
    "table.exec.async-lookup.": "keys are looked up for many rows at once",
    "table.exec.sink.upsert-materialize": (
        "changes of a key keep their order, and rows that are current at the end of a batch are "
        "written last if the key can move between rows of the source"
    ),
    "table.exec.sink.keyed-shuffle": "changes of a key keep their order",
    "table.exec.source.idle-timeout": "there are no watermarks",
    "table.exec.source.cdc-events-duplicate": _ONCE,
    "table.exec.spill-compression.": _PLANNER,
    "table.exec.sort.": _PLANNER,
    "table.exec.shuffle-mode": _PLANNER,
    "table.exec.window-agg.": _PLANNER,
    "table.exec.disabled-operators": _PLANNER,
    "table.exec.operator-fusion-codegen.": _PLANNER,
    "table.exec.uid.": _PLANNER,
    "table.optimizer.": _PLANNER,
    "table.generated-code.": _PLANNER,
    "table.dml-sync": "the script always waits for a bounded statement",
    "pipeline.operator-chaining": _PLANNER,
    "pipeline.object-reuse": _PLANNER,
    "pipeline.max-parallelism": _PLANNER,
    "pipeline.auto-watermark-interval": "there are no watermarks",
    "pipeline.jars": "no jar is needed",
    "pipeline.classpaths": "no jar is needed",
    "execution.attached": _CLUSTER,
    "execution.shutdown-on-attached-exit": _CLUSTER,
    "execution.target": _CLUSTER,
    "execution.buffer-timeout": _CLUSTER,
    "execution.batch-shuffle-mode": _CLUSTER,
    "execution.batch.": _CLUSTER,
    "jobmanager.": _CLUSTER,
    "taskmanager.": _CLUSTER,
    "cluster.": _CLUSTER,
    "slot.": _CLUSTER,
    "jobstore.": _CLUSTER,
    "heartbeat.": _CLUSTER,
    "akka.": _CLUSTER,
    "pekko.": _CLUSTER,
    "rest.": _CLUSTER,
    "web.": _CLUSTER,
    "metrics.": _CLUSTER,
    "high-availability": _CLUSTER,
    "yarn.": _CLUSTER,
    "kubernetes.": _CLUSTER,
    "env.java.": _CLUSTER,
    "classloader.": _CLUSTER,
}
"""Prefixes of keys, and why these settings have no effect."""

_ONE_VALUE = {
    "table.sql-dialect": "default",
    "table.dynamic-table-options.enabled": "true",
    "table.exec.sink.not-null-enforcer": "error",
    "table.exec.sink.type-length-enforcer": "ignore",
    "table.exec.legacy-cast-behaviour": "disabled",
}
"""Keys that would change results, and the one accepted value: the behaviour here."""

_UNSUPPORTED = {
    "execution.savepoint.path": (
        "a script resumes from its own checkpoints; leave it out, and set another "
        "'pipeline.name' to start again"
    ),
    "execution.state-recovery.path": (
        "a script resumes from its own checkpoints; leave it out, and set another "
        "'pipeline.name' to start again"
    ),
}

SYNONYMS = {"table.exec.resource.default-parallelism": "parallelism.default"}
"""Synonyms of keys that have an effect."""

_TYPO_SIMILARITY = 0.93


def ineffective(key: str, value: str, effective: frozenset[str]) -> str | None:
    """Why a Flink setting has no effect here; None for any other key.

    `effective` are the keys that do have an effect. A key that is nearly one of them gives None,
    too: it is more likely a typo. Raises `OptionError` for a setting that would change results.
    """
    if key in _UNSUPPORTED:
        raise OptionError(f"option '{key}': {_UNSUPPORTED[key]}")
    if key in _ONE_VALUE:
        only = _ONE_VALUE[key]
        if value.strip().lower() != only:
            raise OptionError(
                f"option '{key}': '{value}' is not supported; the only supported value is '{only}'"
            )
        return "it is the only supported value"
    if closest(key, effective, _TYPO_SIMILARITY):
        return None
    return next((why for start, why in _FAMILIES.items() if key.startswith(start)), None)
