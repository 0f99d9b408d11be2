"""MERGE, UPDATE and DELETE as one bounded query: each changed row before and after."""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import chain

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from streamhouse.errors import SqlError
from streamhouse.sql.batch.bounded_query import Analyzed, analyze_tree
from streamhouse.sql.batch.dml_syntax import MATCHED, MISSING, ORPHAN, Clause, Parts, parts_of
from streamhouse.sql.functions.expression_builders import column_of, quoted
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.nesting_depth import limited_depth
from streamhouse.sql.plan import ROW, Column, DmlQuery, Resolver, TableInfo
from streamhouse.sql.resolution import insert_target as targets
from streamhouse.sql.resolution.columns import Parsed, reserved, resolve_table
from streamhouse.sql.select_parts import derived, rows_of
from streamhouse.sql.syntax import DmlStatement

ACTION, SOURCE_EXISTS = "__action", "__there"
_RESERVED = (ROW, SOURCE_EXISTS, ACTION)
_COMPARISONS = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)
_OPERANDS = (exp.Column, exp.Identifier, exp.Literal, exp.Cast, exp.DataType, exp.Paren)
_CONDITION = ""
"""In the place of a column's name: the condition of a clause."""


def analyze_dml(statement: DmlStatement, resolver: Resolver, everything: bool = False) -> DmlQuery:
    """The query that computes a statement; with `everything` it also returns unchanged rows.

    Raises `SqlError` with line and column for unknown names, values that do not fit their column,
    a changed primary key, and columns that a clause must not use.
    """
    with limited_depth(statement.query):
        return _Analysis(statement, resolver, everything).plan()


class _Analysis:
    def __init__(self, statement: DmlStatement, resolver: Resolver, everything: bool) -> None:
        self._script, self._parts = parts_of(statement.query)
        self._resolver = resolver
        self._everything = everything
        self._target = resolve_table(self._script, self._parts.target, resolver)
        self._alias = self._parts.target.alias_or_name
        self._source_columns: list[str] = []
        self._source_alias = ""
        self._items: list[exp.Expr] = []
        """The conditions and values of all clauses, as the statement has them."""
        self._places: dict[tuple[int, str], int] = {}
        """The places of these items: by the number of a clause, and a column or `_CONDITION`."""

    def plan(self) -> DmlQuery:
        names = [column.name for column in self._target.columns]
        reserved(self._script, names, self._parts.target, _RESERVED)
        if self._parts.source is not None:
            self._analyze_source(self._parts.source)
        for number, clause in enumerate(self._parts.clauses):
            self._add_clause(number, clause)
        # The target has an additional column that numbers its rows.
        columns = (*self._target.columns, Column(ROW, "BIGINT"))
        numbered = dataclasses.replace(self._target, columns=columns)
        analyzed = self._analyzed(self._wide(), numbered)
        return DmlQuery(
            self._target,
            dataclasses.replace(
                analyzed.plan(self._narrow(analyzed), self._output()),
                keys=tuple(at for at, n in enumerate(names, 2) if n in self._target.primary_key),
                labels=(ACTION, ROW, *names, *names),
            ),
            tuple(clause.action for clause in self._parts.clauses),
            frozenset(
                name
                for number, name in self._places
                if name and self._parts.clauses[number].action == "update"
            ),
            self._parts.source is not None,
        )

    def _analyzed(self, tree: exp.Select, first: TableInfo | None = None) -> Analyzed:
        parsed = Parsed(self._script, tree, "")
        return analyze_tree(parsed, tree.copy(), self._resolver, first)

    def _analyze_source(self, source: exp.Expr) -> None:
        self._source_alias = source.alias_or_name
        if not self._source_alias:
            raise self._script.error_at(source, "give the source a name: USING (SELECT …) AS s")
        if self._source_alias == self._alias:
            raise self._script.error_at(
                source, f"target and source are both named '{self._alias}'; write AS after one"
            )
        analyzed = self._analyzed(rows_of(source.copy()))
        self._source_columns = analyzed.output
        reserved(self._script, analyzed.output, source, _RESERVED)

    def _add_clause(self, number: int, clause: Clause) -> None:
        """Add a clause's condition and values to the items of the wide query."""
        if clause.star:
            values = self._star(clause)
        elif clause.action == "insert":
            values = self._inserted(clause)
        else:
            values = self._updated(clause)
        condition = [] if clause.condition is None else [(_CONDITION, clause.condition)]
        for name, node in chain(condition, values):
            self._check_scope(clause, node)
            self._places[number, name] = len(self._items)
            self._items.append(node)

    def _star(self, clause: Clause) -> Iterator[tuple[str, exp.Expr]]:
        """The columns that `*` gives values, each with that of the source."""
        for column in self._target.columns:
            if clause.action == "update" and column.name in self._target.primary_key:
                continue
            if column.name not in self._source_columns:
                message = (
                    "* takes each column of the target from the source, but "
                    f"'{self._source_alias}' has no '{column.name}'; name the columns"
                )
                raise self._script.error_in([clause.place], message)
            node = column_of(self._source_alias, column.name)
            node.this.meta.update({"start": clause.place.start, "end": clause.place.end})
            yield column.name, node

    def _inserted(self, clause: Clause) -> Iterator[tuple[str, exp.Expr]]:
        """The columns of an INSERT, each with its value."""
        columns = [column.name for column in self._target.columns]
        names = [token.text for token, _ in clause.assignments if token.text] or columns
        first_token = clause.assignments[0][0]
        if len(names) != len(clause.assignments):
            message = (
                f"{len(clause.assignments)} value(s) are given, but "
                f"{targets.dotted(self._target)} has {len(names)} columns: {', '.join(names)}"
            )
            raise self._script.error_in([first_token], message)
        for name, (token, node) in zip(names, clause.assignments, strict=True):
            if name not in columns:
                raise self._not_written(token)
            yield name, node
        for key in self._target.primary_key:
            if key not in names:
                message = f"INSERT has no value for primary key column '{key}'"
                raise self._script.error_in([clause.place], message)

    def _updated(self, clause: Clause) -> Iterator[tuple[str, exp.Expr]]:
        """The columns that SET names, each with its value; none of a DELETE."""
        keys, partitions = self._target.primary_key, self._target.partitioned_by
        another = "DELETE the row and INSERT another"
        for token, node in clause.assignments:
            name = token.text
            if all(column.name != name for column in self._target.columns):
                raise self._not_written(token)
            if name in keys:
                message = f"'{name}' is a primary key column and cannot be changed; {another}"
                raise self._script.error_in([token], message)
            if keys and name in partitions:
                instead = "INSERT the row again" if set(partitions).isdisjoint(keys) else another
                message = f"'{name}' is a partition key and cannot be changed by UPDATE; {instead}"
                raise self._script.error_in([token], message)
            yield name, node

    def _not_written(self, token: Token) -> SqlError:
        return self._script.error_in([token], targets.not_written(self._target, token.text))

    def _check_scope(self, clause: Clause, node: exp.Expr) -> None:
        """Refuse columns that a clause's rows do not have, and qualify the others.

        WHEN NOT MATCHED has only the source's columns, WHEN NOT MATCHED BY SOURCE only the
        target's.
        """
        if clause.when == MATCHED:
            return
        own, other = self._source_alias, self._alias
        own_columns = self._source_columns
        if clause.when == ORPHAN:
            own, other = other, own
            own_columns = [c.name for c in self._target.columns]
            own_columns += [c.name for c in self._target.computed]
        for column in list(node.find_all(exp.Column)):
            if column.find_ancestor(exp.Select) is not None:
                continue
            if column.table == other:
                raise self._script.error_at(
                    column, f"{clause.when} has no row of '{other}'; use '{own}'"
                )
            if not column.table and column.name in own_columns:
                column.set("table", quoted(own))

    def _wide(self) -> exp.Select:
        """The wide query: the target's old row, then all conditions and values, over the join."""
        old = [ROW, *(column.name for column in self._target.columns)]
        items: list[exp.Expr] = [column_of(self._alias, name) for name in old]
        if self._parts.source is not None:
            items.append(column_of(self._source_alias, SOURCE_EXISTS))
        items += [node.copy() for node in self._items]
        select = exp.Select(
            expressions=[_named(item, f"i{n}") for n, item in enumerate(items)],
            from_=exp.From(this=self._parts.target.copy()),
        )
        if self._parts.source is not None:
            select.append("joins", self._join(self._parts))
        return select

    def _join(self, parts: Parts) -> exp.Join:
        assert parts.source is not None and parts.on is not None
        whens = {clause.when for clause in parts.clauses}
        targets_stay, sources_stay = ORPHAN in whens or self._everything, MISSING in whens
        inner = rows_of(parts.source.copy(), {SOURCE_EXISTS: exp.true()})
        join = exp.Join(this=derived(inner, self._source_alias), on=parts.on.copy())
        side = {(True, True): "FULL", (True, False): "LEFT", (False, True): "RIGHT"}
        if (targets_stay, sources_stay) in side:
            join.set("side", side[targets_stay, sources_stay])
        return join

    def _narrow(self, analyzed: Analyzed) -> exp.Query:
        """The query of the changes: action, row number, old columns, new columns."""
        wide = analyzed.tree
        assert isinstance(wide, exp.Select)
        lowered = [item.this for item in wide.expressions]
        count = len(self._target.columns)
        first = 1 + count + (self._parts.source is not None)
        source_exists = lowered[1 + count] if self._parts.source is not None else None
        action = self._action(lowered[0], source_exists, lowered[first:], analyzed.types[first:])
        new = self._new(lowered[1 : 1 + count], lowered[first:], analyzed.types[first:], action)
        items = [action, lowered[0], *lowered[1 : 1 + count], *new]
        wide = wide.copy()
        wide.set(
            "expressions",
            [_named(item, name) for item, name in zip(items, self._output(), strict=True)],
        )
        if self._everything:
            return wide if self._parts.source is None else _deduplicated(wide)
        for term in self._plain_terms(lowered[first:]):
            wide = wide.where(term)
        applies = _null_test(exp.column(quoted(ACTION)), False)
        return rows_of(derived(wide, "changes")).where(applies)

    def _plain_terms(self, items: list[exp.Expr]) -> list[exp.Expr]:
        """What the rows of an UPDATE or DELETE have in common, as scans can prune files by it."""
        place = self._places.get((0, _CONDITION))
        if place is None or self._parts.source is not None or len(self._parts.clauses) > 1:
            return []
        condition = items[place].unnest()
        terms = condition.flatten() if isinstance(condition, exp.And) else [condition]
        return [
            term.copy()
            for term in terms
            if isinstance(term.unnest(), _COMPARISONS) and all(map(_is_plain, term.walk()))
        ]

    def _output(self) -> list[str]:
        count = len(self._target.columns)
        old, new = (f"__old_{n}" for n in range(count)), (f"__new_{n}" for n in range(count))
        return [ACTION, ROW, *old, *new]

    def _action(
        self, row: exp.Expr, source_exists: exp.Expr | None, items: list[exp.Expr], types: list[str]
    ) -> exp.Expr:
        """The number of the first clause that applies to a row of the join; null if none does."""
        cases = []
        for number, clause in enumerate(self._parts.clauses):
            tests = [] if clause.when == ORPHAN else [_null_test(row, clause.when == MISSING)]
            if source_exists is not None:
                tests.append(_null_test(source_exists, clause.when == ORPHAN))
            place = self._places.get((number, _CONDITION))
            if place is not None:
                if types[place] != "BOOLEAN":
                    message = "a condition must be BOOLEAN; compare it with a value"
                    raise self._script.error_at(self._items[place], message)
                tests.append(exp.Paren(this=items[place].copy()))
            cases.append((exp.and_(*tests, copy=True), exp.Literal.number(number)))
        return _case(cases, None)

    def _new(
        self, old: list[exp.Expr], items: list[exp.Expr], types: list[str], action: exp.Expr
    ) -> list[exp.Expr]:
        """The new value of each column; a clause's values are computed for its own rows only."""
        # DuckDB can refer to another projection by its alias, but not if that contains a subquery.
        action_column = action if action.find(exp.Query) else exp.column(quoted(ACTION))
        new_values = []
        for before, column in zip(old, self._target.columns, strict=True):
            cases: list[tuple[exp.Expr, exp.Expr]] = []
            for number, clause in enumerate(self._parts.clauses):
                place = self._places.get((number, column.name))
                if place is not None:
                    then = targets.converted(
                        self._script, self._items[place], items[place].copy(), types[place], column
                    )
                elif clause.action == "update":
                    then = before.copy()
                else:
                    then = targets.cast_to(exp.Null(), "STRING", column.type)
                applies = exp.EQ(this=action_column.copy(), expression=exp.Literal.number(number))
                cases.append((applies, then))
            unchanged = before.copy() if self._everything else None
            new_values.append(_case(cases, unchanged))
        return new_values


def _is_plain(node: exp.Expr) -> bool:
    """Whether a part of a comparison is the same each time, and cannot fail."""
    is_cast = isinstance(node, exp.Cast) and node.find(exp.Column) is not None
    return isinstance(node, (*_COMPARISONS, *_OPERANDS)) and not is_cast


def _deduplicated(wide: exp.Select) -> exp.Select:
    """Remove duplicates of an unchanged target row that matches several source rows."""
    # A source row that matches nothing and that no clause inserts is no row of the target.
    shown = filled(
        "act IS NOT NULL OR (place IS NOT NULL AND "
        "ROW_NUMBER() OVER (PARTITION BY place ORDER BY act NULLS LAST) = 1)",
        act=exp.column(quoted(ACTION)), place=exp.column(quoted(ROW)),
    )  # fmt: skip
    select = rows_of(derived(wide, "changes"))
    select.set("qualify", exp.Qualify(this=shown))
    return select


def _case(cases: Sequence[tuple[exp.Expr, exp.Expr]], otherwise: exp.Expr | None) -> exp.Expr:
    ifs = [exp.If(this=test, true=then) for test, then in cases]
    return exp.Case(ifs=ifs, default=otherwise)


def _named(node: exp.Expr, name: str) -> exp.Alias:
    # Not `exp.alias_`: that aliases a subquery as if it were in FROM.
    return exp.Alias(this=node.copy(), alias=quoted(name))


def _null_test(node: exp.Expr, null: bool) -> exp.Expr:
    test = exp.Is(this=node.copy(), expression=exp.Null())
    return test if null else exp.Not(this=test)
