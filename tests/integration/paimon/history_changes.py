"""Steps of a history that are statements: UPDATE, DELETE, MERGE, INSERT OVERWRITE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.integration.paimon.model import PARTITIONS, Field, Values

from streamhouse import execute

if TYPE_CHECKING:
    from tests.integration.paimon.history import History

_RETRACTED = ("sum", "last_non_null_value")


def change_rows(history: History) -> str | None:
    """An UPDATE, a DELETE or a MERGE, as far as the table takes it."""
    if history.kind.engine == "first-row":
        return None
    random, model = history.random, history.model
    low = random.randrange(history.keys)
    high = low + random.randrange(1, 6)
    columns = [f for f in model.fields if _settable(history, f)]
    actions = ["UPDATE", "MERGE"] if columns and history.kind.updates else []
    if history.kind.deletes:
        actions.append("DELETE")
    if not actions:
        return None
    action = random.choice(actions)
    model.compacted()
    inside = [key for key, row in model.state.rows.items() if low <= row[0] < high]
    where = f"id >= {low} AND id < {high}"
    if action == "DELETE":
        _run(history, f"DELETE FROM {history.identifier} WHERE {where}")
        for key in inside:
            del model.state.rows[key]
    elif action == "UPDATE":
        one = random.choice(columns)
        _run(history, f"UPDATE {history.identifier} SET {one.name} = 7 WHERE {where}")
        for key in inside:
            model.state.rows[key] = {**model.state.rows[key], one.id: 7}
    else:
        _merge(history, random.choice(columns), (low, high))
    return f"{action} {where}"


def _settable(history: History, one: Field) -> bool:
    sums = history.kind.engine != "aggregation" or one.merge in _RETRACTED
    return not one.fixed and one.type in ("INT", "BIGINT") and sums


def _merge(history: History, one: Field, keys: tuple[int, int]) -> None:
    """Rows of two keys are set, or come to be."""
    model = history.model
    fixed: dict[str, Any] = {f.name: f.constant for f in model.fields if f.fixed and f.id}
    on = " AND ".join(["t.id = s.k", *(f"t.{name} = {_text(v)}" for name, v in fixed.items())])
    names = ", ".join(["id", *fixed, one.name])
    values = ", ".join(["s.k", *map(_text, fixed.values()), "8"])
    _run(
        history,
        f"MERGE INTO {history.identifier} AS t USING (VALUES ({keys[0]}), ({keys[1]})) AS s (k) "
        f"ON {on} WHEN MATCHED THEN UPDATE SET {one.name} = 9 "
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})",
    )
    constants: Values = {f.id: f.constant for f in model.fields if f.fixed and f.id}
    for key in keys:
        found = [
            place
            for place, row in model.state.rows.items()
            if row[0] == key and all(row.get(n) == v for n, v in constants.items())
        ]
        for place in found:
            model.state.rows[place] = {**model.state.rows[place], one.id: 9}
        if not found:
            model.write([("+I", {"id": key, **fixed, one.name: 8})])
            model.compacted()


def overwrite(history: History) -> str:
    """INSERT OVERWRITE of the table, of the partitions that get rows, or of a given one."""
    random, model = history.random, history.model
    made = [history.row(deletes=False)[1] for _ in range(random.choice([1, 3, 12]))]
    static = random.choice(PARTITIONS) if model.partition and random.random() < 0.4 else None
    if static is not None:
        made = [] if random.random() < 0.3 else [{**row, "p": static} for row in made]
    keys = [field.name for field in model.fields if field.id in model.key]
    rows = list({tuple(row[name] for name in keys): row for row in made}.values())
    names = [field.name for field in model.fields if static is None or field.id != model.partition]
    lines = [f"({', '.join(_text(row[name]) for name in names)})" for row in rows]
    values = f"VALUES {', '.join(lines)}"
    if not rows:
        values = f"SELECT {', '.join(names)} FROM {history.identifier} WHERE id < 0"
    given = "" if static is None else f" PARTITION (p = '{static}')"
    _run(history, f"INSERT OVERWRITE {history.identifier}{given} {values}")
    model.overwrite(rows, None if static is None else {static})
    return f"{len(rows)} rows{given}"


def _run(history: History, sql: str) -> None:
    execute(history.warehouse, sql, history.java)


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
