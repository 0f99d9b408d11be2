"""Failed reads: a missing file is data loss, an option that does not fit the table is not."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamhouse.errors import DataLossError, OptionError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column

COLUMNS = (Column("id", "INT"), Column("v", "INT"))
FIELDS = ("typo", "not found", "NotFound", "No")
OPTIONS = (
    "sequence.field", "fields.{}.aggregate-function", "fields.{}.sequence-group", "merge-engine",
    "fields.v.sequence-group", "rowkind.field", "scan.tag-name", "scan.version", "scan.mode",
)  # fmt: skip


def rows(shop: Any, name: str, **options: str) -> list[Any]:
    table = Warehouse(str(shop.path)).table(name).copy(options)
    return [batch.to_pydict() for batch in table.read()]


def wrong_options() -> Iterator[dict[str, str]]:
    for option, field in itertools.product(OPTIONS, FIELDS):
        yield {
            option.format(field): "v" if "{}.seq" in option else "sum" if "{}" in option else field
        }


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation", "partial-update"])
def test_a_wrong_option_is_no_missing_file(shop: Any, engine: str) -> None:
    name = shop.create("t", COLUMNS, ["id"], {"merge-engine": engine})
    shop.write(name, (1, 1))
    shop.write(name, (1, 2))
    for options in wrong_options():
        try:
            rows(shop, name, **options)
        except StreamhouseError as error:
            assert not isinstance(error, DataLossError), options
            assert "is gone" not in str(error)
            assert isinstance(error, OptionError) or not {"sequence.field"} & set(options)


@pytest.mark.parametrize("pattern", ["data-*", "manifest-*", "manifest-list-*", "bucket-*"])
def test_a_missing_file_is_data_loss(shop: Any, pattern: str) -> None:
    name = shop.create("t", COLUMNS, ["id"])
    shop.write(name, (1, 1))
    for path in list(Path(shop.path, "shop.db", "t").rglob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DataLossError, match="a file of the snapshot being read is gone"):
        rows(shop, name)
