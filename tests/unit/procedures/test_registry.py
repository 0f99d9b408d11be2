"""Arguments of procedures: both peers' spellings, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from streamhouse.cli.commands.call import parse_call
from streamhouse.errors import OptionError
from streamhouse.procedures import PROCEDURES, find, listed
from streamhouse.sql.syntax import ArgumentValue


def bound(text: str) -> dict[str, ArgumentValue]:
    call = parse_call(text)
    return find(call.procedure).bind(call.arguments)


def test_by_place_as_in_flink() -> None:
    assert bound("sys.compact('db.t', '', '', '', 'sink.parallelism=4')") == {
        "table": "db.t",
        "options": "sink.parallelism=4",
    }
    assert bound("sys.create_tag('db.t', 'x', 10)") == {
        "table": "db.t",
        "tag": "x",
        "snapshot_id": 10,
    }


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("sys.create_tag(`table` => 't', tag => 'x', snapshot_id => cast(1 as bigint))",
         "snapshot_id", 1),
        ("sys.create_tag(table => 't', tag => 'x', snapshot => 1)", "snapshot_id", 1),
        ("sys.replace_tag(table => 't', tag_name => 'x')", "tag", "x"),
        ("sys.rename_tag(table => 't', tagName => 'a', targetTagName => 'b')", "target_tag", "b"),
        ("sys.rollback(table => 't', version => '10')", "tag", "10"),
        ("sys.rollback(table => 't', snapshot => 2)", "snapshot_id", 2),
        ("sys.reset_consumer(table => 't', consumerId => 'c', nextSnapshotId => 10)",
         "next_snapshot_id", 10),
        ("sys.clear_consumers('t', includingConsumers => 'a.*')", "including_consumers", "a.*"),
        ("sys.remove_orphan_files(table => 't', dry_run => 'TRUE')", "dry_run", True),
        ("sys.create_branch('t', 'b', ignoreIfExists => true)", "ignore_if_exists", True),
        ("sys.compact_database(options => 'a=b')", "table_options", "a=b"),
        ("sys.expire_snapshots('t', '5')", "retain_max", 5),
        ("sys.rollback_to_timestamp('t', 1730292023000)", "timestamp", "1730292023000"),
    ],
)  # fmt: skip
def test_both_spellings(text: str, name: str, value: ArgumentValue) -> None:
    assert bound(text)[name] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sys.compakt('t')", "no procedure 'sys.compakt'; did you mean 'compact'?"),
        ("sys.compact('t', partition => 'a=1')", "'partition'; did you mean 'partitions'?"),
        ("sys.create_tag('t')", "argument 'tag' is missing; arguments: table, tag, [snapshot_id]"),
        ("sys.create_tag('t', '')", "argument 'tag' is missing"),
        ("sys.rename_tag('t', 'a', 'b', 'c')", "takes at most 3 arguments: table, tag"),
        ("sys.create_tag('t', 'a', tag_name => 'b')", "'tag' is given twice"),
        ("sys.create_tag('t', 'a', 'x')", "'x' is not a whole number"),
        ("sys.remove_orphan_files('t', dry_run => 'x')", "neither 'true' nor 'false'"),
        ("sys.compact('t', array['a'])", "takes one STRING"),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        bound(text)
    assert said in str(caught.value)


def test_all_are_listed_and_say_what_they_do() -> None:
    found = listed().to_pylist()
    assert [item["procedure"] for item in found] == sorted(PROCEDURES)
    assert all(item["what"].endswith((".", ":")) and item["arguments"] for item in found)
