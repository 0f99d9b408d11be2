"""The `datagen` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.connectors.datagen.field import FIELD_OPTIONS, Field, field_of
from streamhouse.connectors.datagen.generated_source import (
    GeneratedConnector,
    GeneratedSource,
    column_source,
)
from streamhouse.connectors.datagen.nested import ColumnParts
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions
from streamhouse.sql.plan import Column

OPTIONS = DeclaredOptions.of(__package__).options
COMMON_OPTIONS = tuple(option for option in OPTIONS if not option.key.startswith("fields."))
"""The options of all connectors of generated rows."""
_ELEMENTS = "3"
"""The default number of elements of an ARRAY or MAP, as Flink's."""


class _Datagen(GeneratedConnector):
    name = "datagen"
    summary = "Generates rows at a steady rate; a replayed micro-batch has the same rows."
    options = OPTIONS
    scan_note = "all rows; needs `number-of-rows` or a sequence"

    def generated(
        self,
        columns: Sequence[Column],
        options: Mapping[str, str],
        names: Sequence[str] | None = None,
    ) -> GeneratedSource:
        """Options are Flink's, see `connectors.datagen.field`, and those of `Disorder`.

        A `TIMESTAMP` column has the time when its row is due, less up to `max-past`.
        """
        sequences: list[int] = []

        def leaf(path: str, kind: str, whole: bool) -> Field:
            field = field_of(path, kind, options)
            if field.kind == "sequence":
                if not whole:
                    raise OptionError(
                        f"option 'fields.{path}.kind': only a whole column is a sequence"
                    )
                sequences.append(int(field.high or 0) - int(field.low or 0) + 1)
            return field

        parts = ColumnParts(options, leaf, tuple(FIELD_OPTIONS), _ELEMENTS, "element")
        return column_source(columns, parts.columns(columns), options, sequences)


CONNECTOR = _Datagen()
