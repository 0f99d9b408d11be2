"""Sets default values of columns through the Java core, since pypaimon's catalog cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamhouse.sql.schema_changes import SetDefault


def set_defaults(
    warehouse_options: Mapping[str, str], identifier: str, changes: Sequence[SetDefault]
) -> None:
    """Set or remove defaults, in a new JVM; the caller holds the table's commit lock.

    `StreamhouseError` if a default is no value of its column's type.
    """
    from streamhouse.paimon.java.sidecar import Sidecar

    def work(jvm: Any, table: Any) -> None:
        schema = jvm.org.apache.paimon.schema
        updates = jvm.java.util.ArrayList()
        for change in changes:
            path = jvm.java.lang.reflect.Array.newInstance(
                jvm.java.lang.Class.forName("java.lang.String"), len(change.path)
            )
            for position, part in enumerate(change.path):
                jvm.java.lang.reflect.Array.set(path, position, part)
            update = schema.SchemaChange.updateColumnDefaultValue(path, change.default)
            updates.add(update)
        schema.SchemaManager(table.fileIO(), table.location()).commitChanges(updates)

    with Sidecar(warehouse_options) as java:
        java.call(identifier, work)
