"""Parses MATCH_RECOGNIZE, which becomes the SELECT that finds the matches."""

import re
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from streamhouse.sql.expressions import intervals
from streamhouse.sql.functions.expression_builders import ArgumentError, quoted
from streamhouse.sql.functions.row_patterns import Program, Step
from streamhouse.sql.parser.matched_rows import Matching, Measure
from streamhouse.sql.parser.strict_parser import FlinkParseError
from streamhouse.sql.parser.token_cursor import ADVICE
from streamhouse.sql.parser.window_tables import WindowTablesParser

_DATA = "_data"
_SYMBOL = re.compile(r"\w+|\{\s*\d*\s*,?\s*\d*\s*\}|[^\s\w]")
_BOUNDS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_MOST_STEPS = 10_000


class _Pattern:
    """Compiles the text of a PATTERN to steps; raises `ArgumentError`.

    Each part is its steps, and the least number of rows that match it.
    """

    def __init__(self, text: str) -> None:
        self._symbols = [*(symbol.replace(" ", "") for symbol in _SYMBOL.findall(text)), ""]
        self.steps, least = self._any()
        if self._symbols[0]:
            raise ArgumentError(f"the PATTERN cannot have '{self._symbols[0]}' here")
        if not least:
            raise ArgumentError(
                "the PATTERN matches no row at all, too; let it have a variable without * and ?"
            )

    @property
    def variables(self) -> dict[str, None]:
        """The variables, in their order."""
        return {variable: None for kind, *(variable, *_) in self.steps if kind == "row"}

    def _any(self) -> tuple[list[Step], int]:
        steps, least = self._sequence()
        if self._symbols[0] != "|":
            return steps, least
        self._symbols.pop(0)
        others, fewest = self._any()
        first = [("split", 1, len(steps) + 2), *steps, ("jump", len(others) + 1)]
        return [*first, *others], min(least, fewest)

    def _sequence(self) -> tuple[list[Step], int]:
        steps, least = self._repeated()
        while self._symbols[0] not in ("", "|", ")"):
            more, rows = self._repeated()
            steps, least = [*steps, *more], least + rows
        return steps, least

    def _repeated(self) -> tuple[list[Step], int]:
        part, rows = self._part()
        bounds = self._bounds(self._symbols[0])
        if bounds is None:
            return part, rows
        self._symbols.pop(0)
        greedy = self._symbols[0] != "?"
        if not greedy:
            self._symbols.pop(0)
        least, most = bounds

        def before(skipped: int) -> Step:
            return ("split", 1, skipped) if greedy else ("split", skipped, 1)

        size = len(part) + 1
        if (most or least) * size > _MOST_STEPS:
            raise ArgumentError("the PATTERN repeats rows too often; write smaller numbers")
        steps = part * least
        if most is None:
            return [*steps, before(size + 1), *part, ("jump", -size)], least * rows
        for left in range(most - least, 0, -1):
            steps = [*steps, before(left * size), *part]
        return steps, least * rows

    def _part(self) -> tuple[list[Step], int]:
        symbol = self._symbols.pop(0)
        if symbol == "(":
            part = self._any()
            if self._symbols.pop(0) != ")":
                raise ArgumentError("the PATTERN lacks a )")
            return part
        if re.fullmatch(r"[^\W\d]\w*", symbol) and symbol.upper() != "PERMUTE":
            return [("row", symbol)], 1
        raise ArgumentError(
            f"the PATTERN cannot have '{symbol}' here; it has variables, (…), | and the "
            "quantifiers *, +, ?, {n}, {n,}, {,m}, {n,m}"
        )

    def _bounds(self, symbol: str) -> tuple[int, int | None] | None:
        """The bounds of a quantifier; None for anything else."""
        if not symbol.startswith("{"):
            return _BOUNDS.get(symbol)
        least, comma, most = symbol.strip("{}").partition(",")
        bounds = int(least or 0), (int(most) if most else None) if comma else int(least or 0)
        if not (least or most) or (bounds[1] is not None and not bounds[0] <= bounds[1] > 0):
            raise ArgumentError(f"the PATTERN has {symbol}; write {{n}}, {{n,}}, {{,m}} or {{n,m}}")
        return bounds


class MatchRecognizeParser(WindowTablesParser):
    """Adds MATCH_RECOGNIZE to the elements of FROM."""

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        table = super()._parse_table(*args, **kwargs)
        token = self._curr
        if token.token_type != TokenType.MATCH_RECOGNIZE or table is None:
            return table
        if not isinstance(table, exp.Table | exp.Subquery):
            self.refuse("MATCH_RECOGNIZE follows a table or a subquery; name one before it")
        if not table.alias_or_name:
            table.set("alias", exp.TableAlias(this=quoted(_DATA)))
        self._advance()
        try:
            select = self._parse_matching(table).select()
        except ArgumentError as error:
            raise FlinkParseError(str(error), token) from None
        select.update_positions(token)
        found = exp.Subquery(this=select, alias=self._parse_table_alias())
        return found.update_positions(token)

    def _parse_match_recognize(self) -> exp.MatchRecognize | None:
        if self._curr.token_type == TokenType.MATCH_RECOGNIZE:
            self.refuse(ADVICE["clauses"]["match"])
        return None

    def _parse_matching(self, data: exp.Expr) -> Matching:
        self._match_l_paren()
        parts = self._parse_partition_by()
        keys = [key for key in parts if isinstance(key, exp.Column)]
        if len(keys) < len(parts):
            raise ArgumentError(
                "PARTITION BY of MATCH_RECOGNIZE takes columns; compute them before"
            )
        order = self._expect(self._parse_order(), "ORDER BY")
        measures = self._parse_csv(self._parse_named) if self._match_text_seq("MEASURES") else []
        all_rows = self._parse_rows_per_match()
        skip, skip_to = self._parse_skip()
        self._expect(self._match_text_seq("PATTERN"), "PATTERN")
        pattern, within = self._parse_pattern(), self._parse_within()
        subset = self._match_text_seq("SUBSET")
        subsets = dict(self._parse_csv(self._parse_subset)) if subset else {}
        self._expect(self._match_text_seq("DEFINE"), "DEFINE")
        define = {each.name: each.value for each in self._parse_csv(self._parse_definition)}
        self._match_r_paren()
        variables = {name: (name,) for name in pattern.variables} | subsets
        named = [*define, *(name for names in subsets.values() for name in names), skip_to]
        for name in (each for each in named if each and each not in variables):
            listed = ", ".join(variables)
            raise ArgumentError(f"'{name}' is no variable of the PATTERN; it has {listed}")
        program = Program(tuple(pattern.steps), skip, variables.get(skip_to, ()), 1000 * within)
        return Matching(
            data, keys, order.expressions, measures, program, variables, define, all_rows
        )

    def _parse_name(self) -> str:
        return self._expect(self._parse_id_var(), "a name").name

    def _parse_named(self) -> Measure:
        """[FINAL | RUNNING] expression AS name."""
        frame = "RUNNING"
        if self._match_texts(("FINAL", "RUNNING")):
            frame = self._prev.text.upper()
        value = self._expect(self._parse_disjunction(), "an expression")
        self._expect(self._match(TokenType.ALIAS), "AS")
        return Measure(self._parse_name(), value, frame)

    def _parse_definition(self) -> Measure:
        """variable AS condition."""
        name = self._parse_name()
        self._expect(self._match(TokenType.ALIAS), "AS")
        return Measure(name, self._expect(self._parse_disjunction(), "a condition"))

    def _parse_subset(self) -> tuple[str, tuple[str, ...]]:
        """name = (A, B)."""
        name = self._parse_name()
        self._expect(self._match(TokenType.EQ), "=")
        return name, tuple(each.name for each in self._parse_wrapped_csv(self._parse_id_var))

    def _parse_rows_per_match(self) -> bool:
        if not self._match_text_seq("ALL", "ROWS", "PER", "MATCH"):
            self._match_text_seq("ONE", "ROW", "PER", "MATCH")
            return False
        if self._curr.text.upper() in ("SHOW", "OMIT", "WITH"):
            self.refuse("matches have a row at least, and only matched rows are returned; leave "
                        "this clause out")  # fmt: skip
        return True

    def _parse_skip(self) -> tuple[str, str]:
        """AFTER MATCH SKIP …: where the next match may begin, and the variable of that row."""
        if not self._match_text_seq("AFTER", "MATCH", "SKIP"):
            return "PAST", ""
        if self._match_text_seq("PAST", "LAST", "ROW"):
            return "PAST", ""
        self._expect(self._match_text_seq("TO"), "PAST LAST ROW or TO")
        if self._match_text_seq("NEXT", "ROW"):
            return "NEXT", ""
        kind = self._prev.text.upper() if self._match_texts(("FIRST", "LAST")) else "LAST"
        return kind, self._parse_name()

    def _parse_pattern(self) -> _Pattern:
        self._match_l_paren()
        depth, words = 1, []
        while self._curr and depth:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            words.append(self._curr.text)
            self._advance()
        self._expect(not depth, ")")
        return _Pattern(" ".join(words[:-1]))

    def _parse_within(self) -> int:
        """WITHIN INTERVAL …, in milliseconds; 0 if it is left out."""
        if not self._match_text_seq("WITHIN"):
            return 0
        token, node = self._curr, self._parse_disjunction()
        length = None if node is None else intervals.milliseconds(node)
        if not length:
            raise FlinkParseError("WITHIN takes a constant INTERVAL of days or less", token)
        return length
