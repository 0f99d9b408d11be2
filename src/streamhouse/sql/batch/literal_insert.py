"""The plan of a long INSERT … VALUES: analyzes one cell of each form, reads literals from a table.

A form is a set of cells of one column that differ in their literals only. The first cells of all
forms make a short VALUES list, which is analyzed like any query; this finds the errors and the
types of the columns. In the resulting SQL, the literals of these cells are then replaced by columns
of the relation `ROWS`.
"""

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp
from sqlglot.errors import ParseError

from streamhouse.sql.expressions import lowering
from streamhouse.sql.expressions.binder import describe, generate
from streamhouse.sql.functions.expression_builders import VARIES, column_of, quoted
from streamhouse.sql.literal_rows import ROW, Form, LiteralRows, form_column, text_column
from streamhouse.sql.parser import query_parser
from streamhouse.sql.parser.dialect import Flink
from streamhouse.sql.plan import ROWS
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import Script, of_query


def parse_first_cells(script: Script, base: int, rows: LiteralRows) -> exp.Values:
    """A VALUES list of the first cell of each form; `base` is the offset of the query's text.

    Raises `SqlError` with the position in the script, as for any query.
    """

    def cell(form: Form) -> exp.Expr:
        tokens = query_parser.lex(script, base + form.start, base + form.end)
        return query_parser.parse_tokens(script, tokens, Flink.Parser._parse_disjunction)

    columns = [list(map(cell, forms)) for forms in rows.columns]
    lines = (
        [cells[min(number, len(cells) - 1)].copy() for cells in columns]
        for number in range(max(map(len, columns)))
    )
    return exp.Values(expressions=[exp.Tuple(expressions=line) for line in lines])


def parse_rows(query: Query) -> Parsed:
    """The tree of `parse_first_cells`, each literal marked with its column of `ROWS`."""
    assert query.rows is not None
    script = of_query(query)
    base = len(script.text) - len(query.text)
    tree = parse_first_cells(script, base, query.rows)
    columns = {
        base + start: text_column(number, index)
        for number, forms in enumerate(query.rows.columns)
        for form in forms
        for index, start in enumerate(form.literals)
    }
    for literal in tree.find_all(exp.Literal):
        name = columns.get(literal.meta.get("start", -1))
        if name is not None:
            literal.meta[VARIES] = name
    return Parsed(script, lowering.simplify(script, tree), "")


def replace_values(tree: exp.Query, rows: LiteralRows) -> bool:
    """Replace the VALUES of an analyzed query by the relation `ROWS`.

    Returns False if that is impossible: the analysis has consumed a literal, so its value
    determines the expression, or a cast cannot name the column's type.
    """
    values = tree.find(exp.Values)
    assert values is not None
    kinds = [kind for _, kind in describe(generate(tree), {})]
    numbers = _number_types(values)
    lines = [line.expressions for line in values.expressions]
    items: list[exp.Expr] = []
    for number, forms in enumerate(rows.columns):
        cells = [lines[kind][number] for kind in range(len(forms))]
        for cell, form in zip(cells, forms, strict=True):
            # The columns of `ROWS` that have the literals of the cell.
            known = {each.meta.get(VARIES) for each in cell.find_all(exp.Literal)} - {None}
            if len(known) != len(form.literals):
                return False
        item = _column(number, [_over_rows(cell, numbers) for cell in cells], kinds[number])
        if item is None:
            return False
        items.append(exp.alias_(item, quoted(f"column_{number}")))
    select = exp.Select(expressions=items, from_=exp.From(this=exp.Table(this=quoted(ROWS))))
    order = exp.Ordered(this=column_of(ROWS, ROW))
    select.set("order", exp.Order(expressions=[order]))
    values.replace(exp.Subquery(this=select, alias=values.args["alias"]))
    return True


def _number_types(values: exp.Values) -> dict[str, exp.DataType]:
    """The DuckDB type of each number among the literals, by its text."""
    marked = (literal for literal in values.find_all(exp.Literal) if VARIES in literal.meta)
    texts = list(dict.fromkeys(str(literal.this) for literal in marked if not literal.is_string))
    if not texts:
        return {}
    kinds = [kind for _, kind in describe(f"SELECT {', '.join(texts)}", {})]
    built = (exp.DataType.build(str(kind), dialect="duckdb") for kind in kinds)
    return dict(zip(texts, built, strict=True))


def _column(number: int, cells: list[exp.Expr], kind: DuckDBPyType) -> exp.Expr | None:
    """A column of all rows: a CASE over its form if there are several.

    None for a type that a cast cannot name.
    """
    if len(cells) == 1:
        return cells[0]
    try:
        to = None if kind.id == "null" else exp.DataType.build(str(kind), dialect="duckdb")
    except ParseError:
        return None
    form = column_of(ROWS, form_column(number))
    branches = []
    for index, cell in enumerate(cells):
        this = exp.EQ(this=form.copy(), expression=exp.Literal.number(index))
        value = cell if to is None else exp.Cast(this=cell, to=to.copy())
        branches.append(exp.If(this=this, true=value))
    return exp.Case(ifs=branches)


def _over_rows(cell: exp.Expr, numbers: dict[str, exp.DataType]) -> exp.Expr:
    """A cell with each literal replaced by its column of `ROWS`, numbers by a cast of it."""

    def column(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Literal) or VARIES not in node.meta:
            return node
        text = column_of(ROWS, node.meta[VARIES])
        return text if node.is_string else exp.Cast(this=text, to=numbers[str(node.this)].copy())

    return cell.transform(column)
