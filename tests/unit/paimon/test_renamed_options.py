"""Options of earlier Paimon releases: what they are today, wherever they are written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamhouse.errors import OptionError, SqlError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.session.ddl import define, note_outdated_options
from streamhouse.runtime.session.session import Session
from streamhouse.sql.options.renamed_options import DROPPED, RENAMED, current, stored
from streamhouse.sql.parser.hints import outdated
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "tables.md"
VALUES = {
    "blob.stored-descriptor-fields": "",
    "changelog-producer.lookup-wait": "false",
    "delete-file.thread-num": "4",
    "log.scan": "latest",
    "log.scan.timestamp-millis": "1700000000000",
    "log.system": "kafka",
    "log.consistency": "eventual",
    "lookup.dynamic-partition": "max_pt()",
    "lookup.local-file-type": "hash",
    "orc.write.batch-size": "2048",
    "sink.clustering.by-columns": "id",
    "sink.clustering.strategy": "order",
    "streaming-read-mode": "log",
}
"""Values as scripts of then have them; `true` for all others."""


class Scripts:
    """Runs definitions over a warehouse, and keeps what is told of them."""

    def __init__(self, folder: Path) -> None:
        self.session = Session({"warehouse": str(folder)})
        self.notices: list[str] = []
        self.session.notice = self.notices.append

    def run(self, text: str) -> None:
        for statement in parse_script(text):
            note_outdated_options(self.session, statement)
            assert define(self.session, statement)

    def table(self, name: str = "t") -> Table:
        return Warehouse(self.session.catalogs.options("default_catalog")).table(f"default.{name}")

    def written(self) -> dict[str, str]:
        """The options in the table's schema file."""
        options: dict[str, str] = self.table().schema["options"]
        return options


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def create(key: str, value: str, *more: str) -> str:
    given = ", ".join([f"'{key}' = '{value}'", *more])
    return f"CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ({given});"


@pytest.mark.parametrize("key", sorted({*RENAMED} - {"log.scan.timestamp-millis"}))
def test_a_renamed_option_is_the_one_of_today(scripts: Scripts, key: str) -> None:
    old = RENAMED[key]
    value = VALUES.get(key, "true")
    scripts.run(create(key, value))
    assert scripts.written() == {old["now"]: value}
    (notice,) = scripts.notices
    assert notice.startswith(
        f"table default.t: option '{key}' (Paimon {old['until']} and before) is now '{old['now']}'"
    )


@pytest.mark.parametrize("key", sorted({*DROPPED} - {"kafka."} | {"kafka.group.id"}))
def test_a_dropped_option_is_kept_with_a_notice(scripts: Scripts, key: str) -> None:
    value = VALUES.get(key, "true")
    scripts.run(create(key, value))
    assert scripts.written() == {key: value}
    why = DROPPED.get(key, DROPPED["kafka."])["why"]
    (notice,) = scripts.notices
    assert f"option '{key}' (Paimon " in notice and notice.endswith(
        f"no longer has an effect: {why}"
    )
    scripts.run(f"ALTER TABLE t RESET ('{key}');")
    assert scripts.written() == {}


def test_the_guide_names_every_option() -> None:
    section = PAGE.read_text().split("## Options of earlier releases")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", section, re.MULTILINE))
    rows.pop("fields.<column>.default-value")
    rows["kafka."] = rows.pop("kafka.…")
    releases = {key: one["until"] for key, one in RENAMED.items()}
    assert rows == releases | {key: one["until"] for key, one in DROPPED.items()}
    for key, one in RENAMED.items():
        assert re.search(
            rf"^\| `{re.escape(key)}` .*`{re.escape(one['now'])}`", section, re.MULTILINE
        )


def test_one_option_by_two_names_with_two_values_is_an_error(scripts: Scripts) -> None:
    with pytest.raises(OptionError, match="'write.compaction-skip' is 'true' and 'write-only' is"):
        scripts.run(create("write.compaction-skip", "true", "'write-only' = 'false'"))
    scripts.run(create("write.compaction-skip", "true", "'write-only' = 'true'"))
    assert scripts.written() == {"write-only": "true"}


def test_three_old_names_of_one_option_agree_or_are_an_error() -> None:
    names = [key for key, one in RENAMED.items() if one["now"] == "ignore-delete"]
    assert len(names) == 3
    assert current(dict.fromkeys(names, "true"))[0] == {"ignore-delete": "true"}
    with pytest.raises(OptionError, match="set one of them"):
        current({**dict.fromkeys(names, "true"), "ignore-delete": "false"})


def test_alter_table_sets_and_resets_by_either_name(scripts: Scripts) -> None:
    scripts.run(create("bucket", "1"))
    scripts.run("ALTER TABLE t SET ('write.compaction-skip' = 'true');")
    assert scripts.written() == {"bucket": "1", "write-only": "true"}
    scripts.run("ALTER TABLE t RESET ('write.compaction-skip');")
    assert scripts.written() == {"bucket": "1"}
    with pytest.raises(StreamhouseError, match="unknown table option 'write.compaction-skipp'"):
        scripts.run("ALTER TABLE t SET ('write.compaction-skipp' = 'true');")


def test_options_of_a_table_that_an_earlier_release_made(scripts: Scripts) -> None:
    scripts.run(create("bucket", "1"))
    file = Path(scripts.table().location) / "schema" / "schema-0"
    schema = json.loads(file.read_text())
    old = {"write.compaction-skip": "true", "deduplicate.ignore-delete": "true",
           "delete-file.thread-num": "2"}  # fmt: skip
    file.write_text(json.dumps({**schema, "options": {"bucket": "1", **old}}))
    table = Scripts(Path(scripts.table().location).parents[1]).table()
    today = {"bucket": "1", "ignore-delete": "true", "file-operation.thread-num": "2"}
    assert table.options == {**today, "write-only": "true"}
    assert MaintenancePolicy.of(True, table.options, Pace()).commits is None
    scripts.run("ALTER TABLE t SET ('write-only' = 'false');")
    assert scripts.written()["write-only"] == "false"
    assert "write.compaction-skip" not in scripts.written()
    scripts.run("ALTER TABLE t RESET ('file-operation.thread-num');")
    assert "file-operation.thread-num" not in scripts.table().options


def test_todays_name_wins_in_a_table_that_has_both() -> None:
    assert stored({"write.compaction-skip": "true", "write-only": "false"}) == {
        "write-only": "false"
    }


def test_enumerated_values_are_read_in_any_case_as_paimon_does() -> None:
    flink = {"merge-engine": "AGGREGATION", "changelog-producer": "Lookup", "comment": "A"}
    today = {"merge-engine": "aggregation", "changelog-producer": "lookup", "comment": "A"}
    assert stored(flink) == today


def test_an_unknown_option_is_an_error_that_names_the_nearest(scripts: Scripts) -> None:
    with pytest.raises(OptionError, match=r"'compaction.min.file-numm'.*'compaction.min.file-num'"):
        scripts.run(create("compaction.min.file-numm", "3"))
    with pytest.raises(OptionError, match="unknown table option 'log.sytem'"):
        scripts.run(create("log.sytem", "kafka"))


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("type", "format-table", "table"),
        ("type", "object-table", "table"),
        ("merge-engine", "aggregate", "not one of deduplicate, partial-update, aggregation"),
        ("write-mode", "append-only", "unknown table option 'write-mode'"),
        ("buckets", "2", "did you mean 'bucket'"),
        ("fields.v.aggregation-function", "sum", "did you mean 'aggregate-function'"),
    ],
)
def test_values_that_ask_for_other_tables_are_errors(
    scripts: Scripts, key: str, value: str, error: str
) -> None:
    with pytest.raises(OptionError, match=error):
        scripts.run(create(key, value))


def test_words_are_stored_in_lower_case(scripts: Scripts) -> None:
    scripts.run(create("merge-engine", " AGGREGATION ", "'ignore-delete' = ' TRUE'"))
    assert scripts.written() == {"merge-engine": "aggregation", "ignore-delete": "TRUE"}


def test_hints_take_the_options_of_today(scripts: Scripts) -> None:
    from tests.single_stream import analyze_stream

    scripts.run(create("bucket", "1"))
    (statement,) = parse_script(
        "SELECT id FROM t /*+ OPTIONS('log.scan' = 'latest', 'streaming-read-mode' = 'file') */;"
    )
    assert isinstance(statement, Select)
    assert analyze_stream(statement.query, scripts.session).scan.options == {"scan.mode": "latest"}
    first, second = outdated(statement.text)
    assert "'log.scan' (Paimon 0.2 and before) is now 'scan.mode'" in first
    assert "'streaming-read-mode' (Paimon 1.3 and before) no longer has an effect" in second
    (wrong,) = parse_script(
        "SELECT id\nFROM t /*+ OPTIONS('log.scan' = 'latest', 'scan.mode' = 'full') */;"
    )
    assert isinstance(wrong, Select)
    with pytest.raises(SqlError, match="both are now option 'scan.mode'") as raised:
        analyze_stream(wrong.query, scripts.session)
    assert raised.value.line == 2


def test_catalogs_take_the_options_of_paimons_own(scripts: Scripts) -> None:
    scripts.run(
        "CREATE CATALOG c WITH ('type' = 'paimon', 'warehouse' = 'x', 'lock.enabled' = 'true', "
        "'cache-enabled' = 'false', 'default-database' = 'shop', "
        "'table-default.bucket' = '2', 'table-default.write.compaction-skip' = 'true');"
        "USE CATALOG c; CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED);"
        "CREATE TABLE u (id INT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '3');"
    )
    assert scripts.notices[0].startswith("catalog 'c': option 'lock.enabled' has no effect here")
    warehouse = Warehouse(scripts.session.catalogs.options("c"))
    assert warehouse.options.keys() == {"warehouse"}
    assert warehouse.table("shop.t").options == {"bucket": "2", "write-only": "true"}
    assert warehouse.table("shop.u").options["bucket"] == "3"
    with pytest.raises(OptionError, match="unknown option 'lock.enable'"):
        scripts.run("CREATE CATALOG d WITH ('type' = 'paimon', 'lock.enable' = 'true');")
    with pytest.raises(OptionError, match="table.type"):
        scripts.run("CREATE CATALOG d WITH ('type' = 'paimon', 'table.type' = 'external');")
