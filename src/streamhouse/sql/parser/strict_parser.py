"""Errors for syntax that sqlglot's base parser would misread, skip or fail at.

`StrictParser` raises for Flink syntax that is not supported here, at its position.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp, parser
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.parser.token_cursor import ADVICE, Cursor
from streamhouse.sql.parser.types import parse_type
from streamhouse.sql.text import Script
from streamhouse.sql.types import data_type

T = TypeVar("T")

_CLAUSES = ADVICE["clauses"]
_NO_QUERY = "a query must be SELECT or VALUES, also within WITH and parentheses"


class FlinkParseError(ParseError):
    """A parse error at a token.

    `unsupported`: known syntax that is not supported here, rather than a mistake. `own`: the
    message is written for users; a message of the base parser must be translated first.
    """

    def __init__(
        self, message: str, token: Token, unsupported: bool = False, own: bool = True
    ) -> None:
        # The base parser writes the text that it tried to parse into the first of these.
        super().__init__(message, [{}])
        self.message = message
        self.token = token
        self.unsupported = unsupported
        self.own = own


def closed(parsers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Callable[[Any], Any]]:
    """Parsers of the arguments of functions, which need the parenthesis at their end.

    The base parser lets it be left out.
    """

    def with_end(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def parsed(self: StrictParser) -> Any:
            found = parse(self)
            self._expect(self._curr.token_type == TokenType.R_PAREN, ")")
            return found

        return parsed

    return {name: with_end(parse) for name, parse in parsers.items()}


class StrictParser(parser.Parser):
    """The base parser, but it raises for unsupported syntax that the base would misread."""

    script = Script("")
    """What is parsed; the script has declared its functions."""
    STATEMENT_PARSERS: ClassVar[dict[TokenType, Callable[[Any], Any]]] = {
        word: lambda self: self.refuse(_NO_QUERY, self._prev)
        for word in parser.Parser.STATEMENT_PARSERS
        if word != TokenType.TRUNCATE  # It begins a function, too.
    }

    def raise_error(self, message: str, token: Token | None = None) -> None:
        raise FlinkParseError(message, token or self._curr, own=False)

    def refuse(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise that known syntax is not supported; without `token`: at the next token."""
        raise FlinkParseError(message, token or self._curr, unsupported=True)

    def _expect(self, found: T | None, text: str) -> T:
        """What was found; without it, raises that `text` is expected at the next token."""
        if not found:
            self.raise_error(f"Expecting {text}")
        assert found is not None
        return found

    def validate_expression(self, expression: Any, args: Any = None) -> Any:
        """As the base, without its check of argument counts, which `functions` has done."""
        return super().validate_expression(expression)

    def _try_parse(self, parse_method: Callable[[], T], retreat: bool = False) -> T | None:
        """As the base, but re-raises an unsupported error where the base would try other syntax."""
        errors: list[FlinkParseError] = []

        def method() -> T:
            try:
                return parse_method()
            except FlinkParseError as error:
                if error.unsupported:
                    errors.append(error)
                raise

        parsed = super()._try_parse(method, retreat)
        if errors:
            raise errors[0]
        return parsed

    def _parse_pivots(self) -> Any:
        if self._curr.token_type in (TokenType.PIVOT, TokenType.UNPIVOT):
            if self._next.token_type == TokenType.L_PAREN:
                self.refuse(_CLAUSES["pivot"].format(self._curr.text.upper()))
        return super()._parse_pivots()

    def _parse_table_sample(self, as_modifier: bool = False) -> exp.TableSample | None:
        if self._curr.token_type == TokenType.TABLE_SAMPLE:
            self.refuse(_CLAUSES["sample"])
        return super()._parse_table_sample(as_modifier)

    def _parse_statement(self) -> exp.Expr | None:
        return self._parse_values() or super()._parse_statement()

    def _parse_describe(self) -> NoReturn:
        self.refuse(_NO_QUERY, self._prev)

    def _parse_cte(self) -> Any:
        first, cte = self._curr, super()._parse_cte()
        if cte is not None and not isinstance(cte.this, exp.Query):
            self.refuse(_NO_QUERY, first)
        return cte

    def _parse_select_or_expression(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        return self._parse_values() or super()._parse_select_or_expression(*args, **kwargs)

    def _parse_values(self) -> exp.Expr | None:
        # The base parser takes VALUES before an expression without parentheses for a name.
        if self._curr is None or self._curr.token_type != TokenType.VALUES:
            return None
        return self._parse_query_modifiers(self._parse_select())

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        found = super()._parse_cube_or_rollup(with_prefix=True)
        if found is not None and not with_prefix:
            # The base parser takes no conditions.
            found.set("expressions", self._parse_wrapped_csv(self._parse_disjunction))
        return found

    def _parse_grouping_set(self) -> exp.Expr | None:
        return (
            self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
        )

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        if self._curr.text.upper() == "ROW" and self._next.token_type == TokenType.L_PAREN:
            self._advance()
        return super()._parse_value(values)

    def _parse_limit(self, *args: Any, **kwargs: Any) -> Any:
        if self._curr.token_type == TokenType.LIMIT and self._next.token_type == TokenType.ALL:
            self._advance(2)
            return None
        return super()._parse_limit(*args, **kwargs)

    def _parse_lateral(self) -> exp.Lateral | None:
        if self._curr.token_type == TokenType.LATERAL:
            if self._next.token_type == TokenType.TABLE:
                self.refuse(_CLAUSES["lateral_table"])
            if self._next.token_type == TokenType.VIEW:
                self.refuse(_CLAUSES["lateral_view"])
            if self._next.token_type == TokenType.UNNEST:
                self._advance()  # An UNNEST may read the tables before it anyway.
                return None
        return super()._parse_lateral()

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        table = super()._parse_table(*args, **kwargs)
        keywords = ("SYSTEM_TIME", "SYSTEM_VERSION")
        if self._curr.token_type == TokenType.FOR and self._next.text.upper() in keywords:
            if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
                raise FlinkParseError(_CLAUSES["time_travel_after_alias"], self._curr)
            self.refuse(_CLAUSES["time_travel"])
        return table

    def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        first = self._index
        if not kwargs.get("with_collation"):
            found = super()._parse_types(*args, **kwargs)
            literal = isinstance(found, exp.DataType) and kwargs.get("check_func")
            if literal and self._curr.token_type == TokenType.STRING:
                parse_type(Cursor(self.script, self._tokens[first : self._index]))
            return found
        # That of a cast ends before the closing parenthesis of its function.
        end, depth = first, 0
        while end < len(self._tokens) and depth >= 0:
            kind = self._tokens[end].token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            end += 1
        cursor = Cursor(self.script, self._tokens[first:end])
        text = parse_type(cursor)
        while self._curr and self._curr.start < cursor.offset:
            self._advance()
        return data_type(text, self._data_type)

    def _data_type(self, flink: str) -> exp.DataType:
        return exp.DataType.build(flink.removesuffix(" NOT NULL"), dialect=self.dialect)
