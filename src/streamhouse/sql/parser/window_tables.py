"""Parses window table functions: `TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)` in FROM.

Each becomes the SELECT that computes it, so that nothing else needs to know of windows.
"""

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.expressions import intervals
from streamhouse.sql.functions.expression_builders import quoted
from streamhouse.sql.parser.json_functions import JsonFunctionsParser
from streamhouse.sql.parser.strict_parser import FlinkParseError
from streamhouse.sql.parser.windowed_rows import Window, duration_error, windowed

_PARAMETERS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
"""The parameters of each function in their order; OFFSET may be left out."""
_DATA = "_data"


class WindowTablesParser(JsonFunctionsParser):
    """Adds window table functions to the elements of FROM."""

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        at = self._index
        wrapped = self._match_pair(TokenType.TABLE, TokenType.L_PAREN)
        token = self._curr
        name = token.text.upper() if token.token_type == TokenType.VAR else ""
        if name not in _PARAMETERS or self._next.token_type != TokenType.L_PAREN:
            self._retreat(at)
            return super()._parse_table(*args, **kwargs)
        self._advance(2)
        select = self._parse_windowed_rows(token, name)
        for _ in range(1 + bool(wrapped)):
            self._match_r_paren()
        select.update_positions(token)
        table = exp.Subquery(this=select, alias=self._parse_table_alias())
        return table.update_positions(token)

    def _parse_windowed_rows(self, token: Token, name: str) -> exp.Select:
        """The arguments of a window table function, and its rows."""
        parameters, keys = _PARAMETERS[name], list[exp.Expr]()
        values: dict[str, Any] = {}
        while True:
            at, key = self._curr, parameters[min(len(values), len(parameters) - 1)]
            if self._next.token_type == TokenType.FARROW:
                key = self._curr.text.upper()
                self._advance(2)
            if key not in parameters or key in values:
                message = f"{name} takes {', '.join(parameters)}, each once"
                raise FlinkParseError(message, at)
            if key == "DATA":
                values[key] = self._parse_data()
                keys = self._parse_window_keys(name)
            else:
                values[key] = self._parse_time() if key == "TIMECOL" else self._parse_duration(name)
            if not self._match(TokenType.COMMA):
                break
        missing = [each for each in parameters if each not in (*values, "OFFSET")]
        if missing:
            raise FlinkParseError(f"{name} needs the argument {missing[0]}; add it", token)
        window = Window(
            name,
            values["GAP"] if name == "SESSION" else values["SIZE"],
            values.get("SLIDE", values.get("STEP", 0)),
            values.get("OFFSET", 0),
        )
        if (error := window.error()) is not None:
            raise FlinkParseError(error, token)
        return windowed(window, values["DATA"], values["TIMECOL"], keys)

    def _parse_data(self) -> exp.Expr:
        """TABLE name, or a query in parentheses."""
        if not self._match(TokenType.TABLE) and self._curr.token_type != TokenType.L_PAREN:
            raise FlinkParseError(
                "write TABLE before the table's name, or a (SELECT …)", self._curr
            )
        data = self._parse_table()
        if not isinstance(data, exp.Table | exp.Subquery):
            raise FlinkParseError("name a table here, or write a (SELECT …)", self._prev)
        if not data.alias_or_name:
            data.set("alias", exp.TableAlias(this=quoted(_DATA)))
        return data

    def _parse_window_keys(self, name: str) -> list[exp.Expr]:
        """PARTITION BY a, b."""
        token = self._curr
        if not self._match(TokenType.PARTITION_BY):
            return []
        if name != "SESSION":
            message = f"{name} takes no PARTITION BY, only SESSION does; write GROUP BY instead"
            raise FlinkParseError(message, token)
        if self._match(TokenType.L_PAREN, advance=False):
            return list(self._parse_wrapped_csv(self._parse_column))
        # A comma also precedes the next argument.
        keys = [self._parse_column()]
        while self._match(TokenType.COMMA, advance=False) and not self._at_argument():
            self._advance()
            keys.append(self._parse_column())
        return [key for key in keys if key is not None]

    def _at_argument(self) -> bool:
        """Whether an argument, not a column, follows the comma."""
        after = self._tokens[self._index + 1 : self._index + 3]
        return any(token.token_type in (TokenType.L_PAREN, TokenType.FARROW) for token in after[1:])

    def _parse_time(self) -> exp.Expr:
        """DESCRIPTOR(column)."""
        token = self._curr
        if not self._match_text_seq("DESCRIPTOR") or not self._match(TokenType.L_PAREN):
            raise FlinkParseError("write DESCRIPTOR(column) with the column of the time", token)
        column = self._parse_column()
        if not isinstance(column, exp.Column) or not self._match(TokenType.R_PAREN):
            raise FlinkParseError("DESCRIPTOR takes the name of one column", token)
        return column

    def _parse_duration(self, name: str) -> int:
        token = self._curr
        node = self._parse_disjunction()
        length = None if node is None else intervals.milliseconds(node)
        if length is None:
            raise FlinkParseError(duration_error(name), token)
        return length
