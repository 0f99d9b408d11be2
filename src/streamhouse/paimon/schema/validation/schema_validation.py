"""The one check of a table's definition, before it is created or altered.

As strict as the Java core's `SchemaValidation`, and stricter where no core could then write or
read the table, or where an option would have no effect (decision 238).
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.file_formats import avro_rows, nanosecond_timestamps, orc_values
from streamhouse.paimon.schema.options.table_options import option_faults
from streamhouse.paimon.schema.validation import (
    bucket_rules,
    column_rules,
    feature_rules,
    merge_rules,
    option_column_rules,
)
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema


def check_schema(schema: DeclaredSchema, before: DeclaredSchema | None = None) -> None:
    """Raise the first fault of a definition that it did not have `before`.

    Tables that were created by other engines, or by earlier versions, may have faults. These do
    not prevent other changes.
    """
    known = set() if before is None else {str(fault) for fault in _faults(before)}
    for fault in _faults(schema):
        if str(fault) not in known:
            raise fault


def _faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    for rule in _RULES:
        yield from rule(schema)


def _format_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Columns and keys that cannot be written into the table's files."""
    arrow = pa.schema((name, types.arrow_type(parsed)) for name, parsed in schema.types.items())
    for field in arrow:
        yield from _raised(nanosecond_timestamps.check_type, schema.where, field.name, field.type)
    yield from _raised(avro_rows.check_columns, schema.where, arrow, schema.options)
    if orc_values.may_hold_orc(schema.options):
        keys = [*schema.primary_key, *schema.partition_keys]
        present = [key for key in keys if key in schema.texts]
        yield from _raised(orc_values.check_keys, schema.where, schema.texts, present)


def _raised(check: Callable[..., None], *arguments: Any) -> Iterator[StreamhouseError]:
    try:
        check(*arguments)
    except StreamhouseError as error:
        yield error


_RULES: tuple[Callable[[DeclaredSchema], Iterator[StreamhouseError]], ...] = (
    lambda schema: option_faults(schema.options, schema.where),
    column_rules.column_faults,
    column_rules.key_faults,
    _format_faults,
    option_column_rules.option_column_faults,
    merge_rules.sequence_faults,
    merge_rules.order_faults,
    merge_rules.group_faults,
    merge_rules.function_faults,
    merge_rules.ineffective_faults,
    bucket_rules.bucket_faults,
    feature_rules.table_kind_faults,
    feature_rules.combination_faults,
    feature_rules.retention_faults,
    feature_rules.start_faults,
)
