"""What happens between two runs of a query: the second is right by a plain model, or refused.

Each history changes tables, checkpoints or scripts after the first run. The model computes the
script's SELECT over the rows that the source has at the end, by the names of that time.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.local_pipeline import NAME, LocalPipeline

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.streaming.query import QueryFailed

BUCKET = "'bucket' = '1'"
SOURCE = "id INT PRIMARY KEY NOT ENFORCED, k STRING, v INT, w INT, r INT"
TABLES = f"""
CREATE TABLE src ({SOURCE}) WITH ({BUCKET});
CREATE TABLE dim (r INT PRIMARY KEY NOT ENFORCED, f INT, g INT) WITH ({BUCKET});
"""
MORE = "INSERT INTO src2 VALUES (1, 'a', 3, 0, 1), (2, 'a', 3, 0, 1)"
DIM = "INSERT INTO dim VALUES (1, 10, 20), (2, 30, 40)"
Row = dict[str, Any]
Result = dict[Any, Any]
EMPTY = (None, 0, 0.0)


@dataclass(frozen=True)
class Figure:
    """A query into a table of its own: its SELECT, the target, and the model of one row."""

    select: str
    columns: str
    options: str
    of_row: Callable[[Row, Mapping[int, Row]], tuple[Any, Any]]
    fold: str = "sum"
    """How the values of a key become one: `sum`, `distinct`, or `row`, of which there is one."""

    @property
    def ddl(self) -> str:
        return f"CREATE TABLE total ({self.columns}) WITH ({BUCKET}{self.options})"

    @property
    def query(self) -> str:
        return f"INSERT INTO total {self.select}"

    def expected(self, rows: list[Row], dim: Mapping[int, Row]) -> Result:
        found: dict[Any, list[Any]] = defaultdict(list)
        for row in rows:
            key, value = self.of_row(row, dim)
            if value is not None:
                found[key].append(value)
        folds: dict[str, Callable[[list[Any]], Any]] = {
            "sum": sum, "row": lambda values: values[0], "distinct": lambda values: len({*values})
        }  # fmt: skip
        results = {key: folds[self.fold](values) for key, values in found.items()}
        return {key: value for key, value in results.items() if value not in EMPTY}


def half(value: Any) -> Any:
    if value is None:
        return None
    return value / 2 if isinstance(value, float) else int(value / 2)


def text(value: Any) -> Any:
    return None if value is None else str(value)


SUM = ", 'merge-engine' = 'aggregation', 'fields.s.aggregate-function' = 'sum'"
KEYED = "x STRING PRIMARY KEY NOT ENFORCED, s BIGINT, t BIGINT"
T_SUM = f"{SUM}, 'fields.t.aggregate-function' = 'sum'"
JOINED = "JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON src.r = d.r"
FIGURES = {
    "sums": Figure(
        "SELECT k, SUM(v), SUM(0) FROM src GROUP BY k", KEYED, T_SUM,
        lambda row, dim: (row["k"], row["v"]),
    ),
    "halves": Figure(
        "SELECT k, SUM(v / 2) FROM src GROUP BY k",
        "x STRING PRIMARY KEY NOT ENFORCED, s DOUBLE", SUM,
        lambda row, dim: (row["k"], half(row["v"])),
    ),
    "texts": Figure(
        "SELECT COALESCE(CAST(v AS STRING), ''), COUNT(*) FROM src "
        "GROUP BY COALESCE(CAST(v AS STRING), '')",
        "x STRING PRIMARY KEY NOT ENFORCED, s BIGINT", SUM,
        lambda row, dim: (text(row["v"]) or "", 1),
    ),
    "distinct": Figure(
        "SELECT k, COUNT(DISTINCT v) FROM src GROUP BY k",
        "x STRING PRIMARY KEY NOT ENFORCED, s BIGINT", SUM,
        lambda row, dim: (row["k"], row["v"]), "distinct",
    ),
    "distinct joined": Figure(
        f"SELECT k, COUNT(DISTINCT v * f) FROM src {JOINED} GROUP BY k",
        "x STRING PRIMARY KEY NOT ENFORCED, s BIGINT", SUM,
        lambda row, dim: (
            row["k"],
            None
            if row["v"] is None or dim[row["r"]]["f"] is None
            else row["v"] * dim[row["r"]]["f"],
        ),
        "distinct",
    ),
    "joined": Figure(
        f"SELECT k, SUM(v * f), SUM(0) FROM src {JOINED} GROUP BY k", KEYED, T_SUM,
        lambda row, dim: (
            row["k"],
            None
            if row["v"] is None or dim[row["r"]]["f"] is None
            else row["v"] * dim[row["r"]]["f"],
        ),
    ),
    "copied": Figure(
        "SELECT id, v, w FROM src", "x INT PRIMARY KEY NOT ENFORCED, s DOUBLE, t INT", "",
        lambda row, dim: (row["id"], row["v"]), "row",
    ),
}  # fmt: skip


class History:
    """One query, what happens between its two runs, and what came of it."""

    def __init__(self, folder: Path, figure: Figure, seed: int) -> None:
        self.pipeline = LocalPipeline(folder)
        self.figure, self.random = figure, random.Random(seed)
        self.name, self.query = NAME, figure.query
        self.passes: Callable[[Row], bool] = lambda row: True
        self.pipeline.do(f"{TABLES}; {figure.ddl}; {DIM}")
        self.change()

    def change(self) -> None:
        """Insert, update and delete some rows of the source."""
        names = [c.name for c in self.pipeline.warehouse.table("default.src").columns]
        rows = []
        for number in self.random.sample(range(1, 9), 5):
            values: Row = {"id": number, "r": self.random.randint(1, 2)}
            for name in names:
                values.setdefault(name, self.random.choice([0, 1, 3, 5, 7, 8]))
            values["k"] = self.random.choice("ab")
            rows.append(", ".join(repr(values[name]) for name in names))
        self.pipeline.do(f"INSERT INTO src VALUES ({'), ('.join(rows)})")
        self.pipeline.do(f"DELETE FROM src WHERE id = {self.random.randint(1, 8)}")

    def run(self) -> list[str]:
        return self.pipeline.run(self.query, self.name)

    def actual(self) -> Result:
        rows = [tuple(row.values()) for row in self.pipeline.rows("total")]
        return {key: value for key, value, *_ in rows if value not in EMPTY}

    def expected(self) -> Result:
        dim = {row["r"]: row for row in self.pipeline.rows("dim")}
        return self.figure.expected([*filter(self.passes, self.pipeline.rows("src"))], dim)

    def equal(self) -> bool:
        """What an audit says."""
        return audit(self.pipeline.options, "default.total").equal

    @property
    def checkpoint(self) -> Path:
        return self.pipeline.checkpoint("total")


def altered(*statements: str) -> Callable[[History], None]:
    return lambda history: history.pipeline.do(
        ";".join(f"ALTER TABLE {statement}" for statement in statements)
    )


def swapped(table: str, a: str, b: str) -> Callable[[History], None]:
    return altered(
        f"{table} RENAME {a} TO other_",
        f"{table} RENAME {b} TO {a}",
        f"{table} RENAME other_ TO {b}",
    )


def recreated(table: str, rows: str = "") -> Callable[[History], None]:
    def act(history: History) -> None:
        ddl = history.figure.ddl if table == "total" else TABLES.split(";")[table == "dim"]
        history.pipeline.do(f"DROP TABLE {table}; {ddl}{rows}")

    return act


def older(runs: int) -> Callable[[History], None]:
    """Restore a copy of the checkpoint from before the last runs."""

    def act(history: History) -> None:
        copy = history.checkpoint.with_name("copy")
        shutil.copytree(history.checkpoint, copy)
        for _ in range(runs):
            history.change()
            history.run()
        shutil.rmtree(history.checkpoint)
        copy.rename(history.checkpoint)

    return act


def older_target(history: History) -> None:
    """Restore a copy of the target from before the last run."""
    table = Path(history.pipeline.options["warehouse"]) / "default.db" / "total"
    shutil.copytree(table, table.with_name("copy"))
    history.change()
    history.run()
    shutil.rmtree(table)
    table.with_name("copy").rename(table)


def lost(*logs: str, emptied: bool) -> Callable[[History], None]:
    """The last file of each log is empty, or gone."""

    def act(history: History) -> None:
        for log in logs:
            last = max((history.checkpoint / log).iterdir(), key=lambda path: int(path.name))
            last.write_bytes(b"") if emptied else last.unlink()

    return act


def renamed_script(history: History) -> None:
    history.name = "renamed.sql"


def deleted(history: History) -> None:
    shutil.rmtree(history.checkpoint)


def deleted_file(name: str) -> Callable[[History], None]:
    return lambda history: os.unlink(history.checkpoint / name)


def adapted(before: str, after: str, event: Callable[[History], None]) -> Callable[[History], None]:
    """The event, and the script is changed to say the same about the tables of after it."""

    def act(history: History) -> None:
        event(history)
        history.query = history.query.replace(before, after)

    return act


def filtered(condition: str, passes: Callable[[Row], bool]) -> Callable[[History], None]:
    """The script's SELECT leaves rows out."""

    def act(history: History) -> None:
        rows = f"(SELECT * FROM src WHERE {condition}) AS src"
        history.query = history.query.replace(" FROM src", f" FROM {rows}")
        history.passes = passes

    return act


EVENTS: dict[str, Callable[[History], None]] = {
    "nothing": lambda history: None,
    "column added": altered("src ADD z INT"),
    "renamed, added": altered("src RENAME v TO old_v", "src ADD v INT"),
    "swapped": swapped("src", "v", "w"),
    "dropped, added": altered("src DROP v", "src ADD v INT"),
    "other dropped": altered("src DROP w", "src ADD w INT"),
    "widened to BIGINT": altered("src MODIFY v BIGINT"),
    "widened to DOUBLE": altered("src MODIFY v DOUBLE"),
    "source created again": recreated("src"),
    "dimension renamed, added": altered("dim RENAME f TO old_f", "dim ADD f INT"),
    "dimension swapped": swapped("dim", "f", "g"),
    "dimension dropped, added": altered("dim DROP f", "dim ADD f INT"),
    "dimension created again": recreated("dim", f"; {DIM}"),
    "dimension widened": altered("dim MODIFY f DOUBLE"),
    "target created again": recreated("total"),
    "target dropped, added": altered("total DROP s", "total ADD s BIGINT"),
    "target swapped": swapped("total", "s", "t"),
    "target widened": altered("total MODIFY s DECIMAL(25, 0)"),
    "target truncated": lambda history: history.pipeline.do("TRUNCATE TABLE total"),
    "restored older": older(1),
    "restored older by two": older(2),
    "target restored older": older_target,
    "commit lost": lost("commits", emptied=False),
    "commit emptied": lost("commits", emptied=True),
    "offset lost": lost("offsets", emptied=False),
    "offset emptied": lost("offsets", emptied=True),
    "both lost": lost("offsets", "commits", emptied=False),
    "both emptied": lost("offsets", "commits", emptied=True),
    "query.json lost": deleted_file("query.json"),
    "metadata lost": deleted_file("metadata"),
    "checkpoint deleted": deleted,
    "script renamed": renamed_script,
    "filter added": filtered("v <> 3", lambda row: row["v"] != 3),
    "filter of nothing added": filtered("1 = 1", lambda row: True),
}
TOLD = ("were removed since", "TRUNCATE TABLE", "rows written so far stay")
"""What a notice says of rows that the model expects, and that the second run does not have."""


def cases(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Pairs of a query and an event: all in turn, in a random order."""
    pairs = [(figure, event) for figure in FIGURES for event in EVENTS]
    random.Random(seed).shuffle(pairs)
    return iter((pairs * (count // len(pairs) + 1))[:count])


def outcome(folder: Path, figure: str, event: str, seed: int) -> str:
    """How a history ended; raises `AssertionError` if the result is wrong, and nobody said it."""
    history = History(folder, FIGURES[figure], seed)
    for _ in range(history.random.randint(1, 2)):
        history.run()
        assert history.actual() == history.expected(), "the first run"
        history.change()
    try:
        EVENTS[event](history)
    except StreamhouseError as error:
        return f"the event is not possible: {error}"
    if event not in ("source created again",):
        history.change()
    try:
        notices = history.run()
    except (StreamhouseError, QueryFailed) as error:
        assert isinstance(error, StreamhouseError) or "Error: " in str(error), error
        return f"refused: {error}"
    actual, expected = history.actual(), history.expected()
    if any(part in notice for notice in notices for part in TOLD):
        return f"told: {notices}"
    assert actual == expected, f"silently wrong: {actual}, not {expected}; {notices}"
    assert history.equal(), "the audit says that it is wrong"
    return f"right; {notices}"


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 5), *(pytest.param(s, 200, marks=pytest.mark.soak) for s in (1, 2, 3))]
)
def test_a_query_that_starts_again_is_right_or_refused(
    tmp_path: Path, seed: int, count: int
) -> None:
    for number, (figure, event) in enumerate(cases(seed, count)):
        try:
            outcome(tmp_path / str(number), figure, event, seed + number)
        except AssertionError as error:
            raise AssertionError(f"{figure}, {event}, seed {seed + number}: {error}") from error


@pytest.mark.parametrize("figure", ["distinct", "distinct joined"])
def test_a_renamed_script_does_not_add_its_results_again(tmp_path: Path, figure: str) -> None:
    """Each pipeline has a view of its own for them."""
    assert outcome(tmp_path, figure, "script renamed", 5).startswith("refused: ")


def test_a_folder_of_files_knows_its_last_batch(tmp_path: Path) -> None:
    history = History(tmp_path, FIGURES["copied"], 1)
    folder = tmp_path / "files"
    history.pipeline.do("CREATE TABLE numbers (n INT); INSERT INTO numbers VALUES (1), (2)")
    history.query = (
        "CREATE TEMPORARY TABLE files (n INT) WITH ('connector' = 'filesystem', "
        f"'path' = '{folder}', 'format' = 'json'); INSERT INTO files SELECT n FROM numbers"
    )
    history.run()
    # What is written to another place lacks what was written so far.
    before = history.query
    history.query = before.replace(str(folder), str(tmp_path / "second"))
    with pytest.raises(StreamhouseError, match="declared in another place"):
        history.run()
    history.query = before
    (checkpoint,) = (history.pipeline.root / NAME).glob("*files$filesystem")
    for log in ("offsets", "commits"):
        shutil.rmtree(checkpoint / log)
    with pytest.raises(StreamhouseError, match="the folder .*/files has batch 0 of the query"):
        history.run()
