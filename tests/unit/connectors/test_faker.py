"""The `faker` connector: directives, types, nested columns, repeatability, errors."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S

from streamhouse.connectors.faker import patterns
from streamhouse.connectors.faker.directives import Directive, parse_expression
from streamhouse.connectors.registry import check_declaration, connector
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import OptionError
from streamhouse.sql.plan import Column, TableInfo

ROWS = 4_000
BASE_MS = 1_700_000_000_000


def generated(type_: str, expression: str | dict[str, str], **more: str) -> list[Any]:
    """A column `c` of 4,000 rows, which are due one a millisecond."""
    given = {"": expression} if isinstance(expression, str) else expression
    options = {
        f"fields.c{f'.{path}' if path else ''}.expression": text for path, text in given.items()
    }
    options |= {"rows-per-second": "1000", "number-of-rows": f"{ROWS}"} | more
    columns = (Column("c", type_),)
    check_declaration(
        TableInfo(("c", "d", "t"), columns, options=options, connector="faker"), "table t"
    )
    source = connector("faker").source(SourceSpec("faker", options, columns), None)
    end = {"rows": ROWS, "base_rows": 0, "base_ms": BASE_MS}
    batches = [b for p in source.partitions({}, end) for b in source.read(p)]
    return list(pa.Table.from_batches(batches).column("c").to_pylist())


def test_expressions_are_parsed() -> None:
    text = "a #{Name.first_name}@#{options.option 'x, y', 'z'}#{regexify '[}]{2}'}!"
    assert parse_expression("k", text) == [
        "a ", Directive("Name.first_name"), "@", Directive("options.option", ("x, y", "z")),
        Directive("regexify", ("[}]{2}",)), "!",
    ]  # fmt: skip
    with pytest.raises(OptionError, match="option 'k': '#{Name.first' is not a directive"):
        parse_expression("k", "x #{Name.first")


@pytest.mark.parametrize(
    ("type_", "expression", "pattern"),
    [
        ("STRING", "#{Name.fullName}", r"\S+ \S+"),
        ("STRING", "#{Internet.emailAddress}", r"\S+@\S+\.\w+"),
        ("STRING", "#{Internet.ipV4Address}", r"(\d{1,3}\.){3}\d{1,3}"),
        ("STRING", "#{Internet.ipV6Address}", r"([0-9a-f]{4}:){7}[0-9a-f]{4}"),
        ("STRING", "#{Internet.macAddress}", r"([0-9a-f]{2}:){5}[0-9a-f]{2}"),
        ("STRING", "#{Options.option 'a', 'b'}", "a|b"),
        ("STRING", r"#{regexify '(ab|[c-e]{2}|x?)\d+[^f]z*'}", r"(ab|[c-e]{2}|x?)\d+[^f]z*"),
        ("STRING", "#{bothify '##-??-9'}", r"\d\d-[a-z][a-z]-9"),
        ("STRING", "#{Lorem.characters '3','5'}", "[a-z0-9]{3,5}"),
        ("STRING", "nr. #{number.numberBetween '1','3'}", "nr. [12]"),
        ("STRING", "constant", "constant"),
        ("STRING", "#{date.between '2024-01-01','2024-01-02'}", r"2024-01-01 \d\d:.*"),
        ("STRING", "#{harry_potter.house}", "Gryffindor|Hufflepuff|Ravenclaw|Slytherin"),
        ("STRING", "#{Commerce.productName}", r"\S+ \S+ \S+"),
        ("VARCHAR(3)", "#{number.digits '9'}", r"\d{3}"),
    ],
)
def test_texts(type_: str, expression: str, pattern: str) -> None:
    texts = generated(type_, expression)
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert expression == "constant" or len(set(texts)) > 1


def test_numbers_and_other_types() -> None:
    assert set(generated("INT", "#{number.numberBetween '1','4'}")) == {1, 2, 3}
    assert set(generated("BIGINT", "#{number.numberBetween '-1','-1'}")) == {-1}
    assert set(generated("TINYINT", "#{Options.option '7','-8'}")) == {7, -8}
    prices = generated("DECIMAL(6, 2)", "#{number.randomDouble '3','1','99'}")
    assert Decimal(1) <= min(prices) and max(prices) <= 99 and len(set(prices)) > 2_000
    assert set(generated("BOOLEAN", "#{bool.bool}")) == {True, False}
    assert {type(one) for one in generated("DOUBLE", "#{Address.latitude}")} == {float}
    assert generated("BYTES", "x")[0] == b"x"
    ids = generated("STRING", "#{Internet.uuid}")
    assert len(set(ids)) == ROWS and {uuid.UUID(one).version for one in ids} == {4}


def test_times_are_relative_to_when_a_row_is_due() -> None:
    due = datetime.datetime.fromtimestamp(BASE_MS / 1000, datetime.UTC)
    past = generated("TIMESTAMP_LTZ(3)", "#{date.past '15','5','SECONDS'}")
    ages = [
        (due + datetime.timedelta(milliseconds=n + 1) - at).total_seconds()
        for n, at in enumerate(past)
    ]
    assert 5 <= min(ages) < 5.1 and 14.9 < max(ages) <= 15.001
    assert min(generated("TIMESTAMP(3)", "#{date.future '1','DAYS'}")) > due.replace(tzinfo=None)
    births = {day.year for day in generated("DATE", "#{date.birthday '20','30'}")}
    assert births <= set(range(1993, 2004)) and len(births) > 9


def test_nested_columns_and_nulls() -> None:
    rows = generated(
        "ROW<house STRING, points INT>",
        {"house": "#{harry_potter.house}", "points": "#{number.numberBetween '10','13'}"},
    )
    assert {row["points"] for row in rows} == {10, 11, 12}
    arrays = generated("ARRAY<STRING>", "#{Options.option 'a','b'}", **{"fields.c.length": "3"})
    assert {"".join(array) for array in arrays} == {
        x + y + z for x in "ab" for y in "ab" for z in "ab"
    }
    maps = generated(
        "MAP<STRING, INT>",
        {"key": "#{Options.option 'a','b'}", "value": "#{number.randomDigit}"},
        **{"fields.c.length": "2"},
    )
    assert {tuple(key for key, _ in one) for one in maps} == {
        ("a",), ("b",), ("a", "b"), ("b", "a")
    }  # fmt: skip
    sparse = generated("INT", "#{number.randomDigit}", **{"fields.c.null-rate": "0.25"})
    assert sparse.count(None) == pytest.approx(ROWS / 4, rel=0.1)


def test_other_processes_and_seeds() -> None:
    expression = "#{Company.name}, #{Address.streetAddress}, #{Job.title}, #{License_plate}"
    own = generated("STRING", expression)
    code = (
        "from tests.unit.connectors.test_faker import generated;"
        f"print(generated('STRING', {expression!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert done.stdout == f"{own!r}\n"
    assert generated("STRING", expression, seed="1") != own
    german = generated("STRING", "#{Address.city}", locale="de_DE")
    assert set(german) != set(generated("STRING", "#{Address.city}"))


def test_every_directive_has_texts() -> None:
    for key in patterns.known():
        if "." in key:
            found = patterns.pool(key, key, "en_US", sample=True)
            assert found is not None and len(set(found.to_pylist())) > 1, key


@pytest.mark.parametrize(
    ("type_", "expression", "more", "message"),
    [
        ("STRING", "#{Name.fulName}", {}, "unknown directive 'Name.fulName'; did you mean 'name.f"),
        ("STRING", "#{date_time}", {}, "unknown directive 'date_time'"),
        ("STRING", "#{seed_instance}", {}, "unknown directive 'seed_instance'"),
        ("INT", "#{Name.fullName}", {}, "its values do not fit the column's type"),
        ("INT", "#{number.numberBetween '5','1'}", {}, "5 is greater than 1"),
        ("INT", "#{number.numberBetween '5'}", {}, "takes 2 whole numbers"),
        ("STRING", "#{Name.fullName '1'}", {}, "'Name.fullName' takes no arguments"),
        ("STRING", "#{Internet.uuid '1'}", {}, "'Internet.uuid' takes no arguments"),
        ("STRING", "#{regexify '['}", {}, "is not a regular expression"),
        ("STRING", r"#{regexify '(?=a)b'}", {}, "is not supported"),
        ("STRING", r"#{regexify 'a{2000}'}", {}, "the most are 1000"),
        ("TIMESTAMP(3)", "#{date.past '15','WEEKS'}", {}, "'WEEKS' is not a unit"),
        ("STRING", "x", {"fields.c.null-rat": "1"}, "did you mean 'null-rate'"),
        (
            "STRING",
            "x",
            {"fields.d.expression": "1"},
            "'fields.d.expression': there is no column 'd'",
        ),
        ("STRING", {}, {}, "option 'fields.c.expression' is missing"),
        ("STRING", "x", {"locale": "xx_XX"}, "'xx_XX' is not a locale"),
        ("INT NOT NULL", "1", {"fields.c.null-rate": "2"}, "is not a share from 0 to 1"),
    ],
)
def test_wrong_declarations(
    type_: str, expression: str | dict[str, str], more: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(message)) as raised:
        generated(type_, expression, **more)
    assert str(raised.value).startswith("table t: ") and len(str(raised.value).splitlines()) == 1
