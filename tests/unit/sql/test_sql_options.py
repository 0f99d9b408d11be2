"""Options that the SQL layer checks itself."""

from __future__ import annotations

import pytest

from streamhouse.connectors.datagen.connector import CONNECTOR
from streamhouse.errors import OptionError
from streamhouse.sql.options.known_options import check_lookup, check_set
from streamhouse.sql.plan import Column, TableInfo

COLUMNS = (
    Column("id", "BIGINT", nullable=False),
    Column("price", "DOUBLE"),
    Column("name", "STRING"),
    Column("at", "TIMESTAMP(3)"),
    Column("code", "CHAR(5)"),
    Column("short", "VARCHAR(3)"),
)


def test_datagen_accepts_its_options() -> None:
    options = {
        "rows-per-second": "10",
        "number-of-rows": "100",
        "fields.id.kind": "sequence",
        "fields.id.start": "1",
        "fields.id.end": "50",
        "fields.price.min": "0.5",
        "fields.price.max": "9",
        "fields.name.length": "3",
        "fields.at.max-past": "5 s",
        "fields.at.null-rate": "0.5",
    }
    CONNECTOR.check(TableInfo(("t",), COLUMNS), options, "table t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rows-per-secnd": "1"},
            "unknown option 'rows-per-secnd'; did you mean 'rows-per-second'?",
        ),
        ({"rows-per-second": "0"}, "option 'rows-per-second': 0 is too small; the least is 1"),
        ({"fields.prize.min": "1"}, "there is no column 'prize'; did you mean 'price'?"),
        ({"fields.price.mim": "1"}, "unknown option 'fields.price.mim'; did you mean 'min'?"),
        ({"fields.name.min": "1"}, "'fields.name.min' does not apply to STRING"),
        ({"fields.id.min": "1.5"}, "option 'fields.id.min': '1.5' is not a whole number"),
        ({"fields.id.start": "1"}, "'fields.id.start' needs 'fields.id.kind' = 'sequence'"),
        ({"fields.id.kind": "sequence"}, "a sequence needs 'fields.id.start'"),
        ({"fields.id.kind": "seq"}, "'seq' is not one of random, sequence"),
        ({"fields.at.null-rate": "2"}, "'2' is not a share from 0 to 1"),
        ({"fields.id.min": "5", "fields.id.max": "4"}, "5 is greater than 'fields.id.max', 4"),
        ({"fields.price.max": "inf"}, "option 'fields.price.max': 'inf' is not a finite number"),
        ({"fields.price.min": "nan"}, "option 'fields.price.min': 'nan' is not a finite number"),
        ({"fields.id.null-rate": "0.1"}, "option 'fields.id.null-rate': column 'id' is NOT NULL"),
        ({"fields.code.length": "4"}, "'fields.code.length' does not apply to CHAR(5)"),
        ({"fields.short.length": "4"}, "4 is more than VARCHAR(3) holds"),
    ],
)
def test_datagen_names_the_wrong_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        CONNECTOR.check(TableInfo(("t",), COLUMNS), options, "table t")
    assert message in str(caught.value)


def test_set() -> None:
    check_set("execution.checkpointing.interval", "500 ms")
    check_set("execution.runtime-mode", "BATCH")
    check_set("sql-client.execution.result-mode", "tableau")
    for key, value, message in [
        ("pipline.name", "x", "SET: unknown option 'pipline.name'; did you mean 'pipeline.name'?"),
        ("table.local-time-zone", "Europe/Pariss", "'Europe/Pariss' is not a time zone"),
        ("execution.runtime-mode", "auto", "'auto' is not one of streaming, batch"),
        ("execution.checkpointing.interval", "soon", "'soon' is not a duration"),
        ("parallelism.default", "0", "0 is too small"),
    ]:
        with pytest.raises(OptionError) as caught:
            check_set(key, value)
        assert message in str(caught.value)


def test_lookup_options_without_effect_are_reported() -> None:
    options = {"lookup.cache": "auto", "lookup.async": "true", "scan.mode": "latest"}
    assert check_lookup(options, "table c") == ["lookup.async"]
    with pytest.raises(OptionError, match="did you mean 'lookup.async'?"):
        check_lookup({"lookup.asinc": "true"}, "table c")
    with pytest.raises(OptionError, match="'some' is not one of AUTO, FULL, MEMORY"):
        check_lookup({"lookup.cache": "some"}, "table c")
