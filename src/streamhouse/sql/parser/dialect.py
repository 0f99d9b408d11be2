"""Flink's SQL dialect, as a small delta over sqlglot's base dialect.

The parser parses queries and expressions only, for `parser.query_parser`;
`streamhouse.sql.statements.script` parses the statements around them. The base would drop or
misread two things. Here, `/*+ … */` blocks reach the tree (in the `meta` of a table, as `Hint` on a
SELECT) or are an error, and only the functions of `streamhouse.sql.functions` exist.
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.expressions import intervals
from streamhouse.sql.functions import supported, texts
from streamhouse.sql.functions.expression_builders import ArgumentError, current_time
from streamhouse.sql.parser.group_windows import GROUP_WINDOWS
from streamhouse.sql.parser.match_recognize import MatchRecognizeParser
from streamhouse.sql.parser.matched_rows import PATTERN_FUNCTIONS
from streamhouse.sql.parser.strict_parser import FlinkParseError, closed
from streamhouse.sql.udf.function import Declaration
from streamhouse.sql.udf.registry import declared_call

# Keywords of the base dialect that are not keywords here: operators that Flink lacks, functions.
_REMOVED_KEYWORDS = frozenset(
    ("/*+", "::", "?::", "??", "->", "->>", "~~", "~~~", "~~*", "~*", "SESSION")
)
_BASE_PARSERS = "CAST CEIL EXTRACT FLOOR POSITION SUBSTRING TRIM TRY_CAST".split()
_NOT_FUNCTION_NAMES = frozenset({*parser.Parser.SUBQUERY_PREDICATES, TokenType.TABLE})
"""Tokens that can precede a parenthesis as a function's name does, but name no function."""
_COUNTS = {"CEIL": (1, 1), "FLOOR": (1, 1), "POSITION": (1, 2), "SUBSTRING": (1, 3)}
"""The least and greatest number of arguments, where commas separate them."""
_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_INTERVAL_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_MOST_DIGITS = 9
_CHARSETS = ("_UTF8", "_utf8", "_UTF-8", "_UTF16", "_UTF-16", "_UTF-16LE", "_LATIN1", "_ISO-8859-1")
"""What may be before a string to name its character set; the script is UTF-8."""


PLACE = "place"
"""Key in the `meta` of a FROM, JOIN, WHERE or WITH: the range of the whole clause in the script."""


def _placed(parse: Callable[..., Any]) -> Callable[..., Any]:
    """A method that parses a clause as `parse` does, and notes its `PLACE`."""

    def parsed(self: Any, *args: Any, **kwargs: Any) -> Any:
        first, clause = self._index, parse(self, *args, **kwargs)
        if clause is not None:
            clause.meta[PLACE] = self._tokens[first].start, self._prev.end + 1
        return clause

    return parsed


class Flink(Dialect):
    """Apache Flink SQL: queries and expressions."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE
    SUPPORTS_USER_DEFINED_TYPES = False
    TYPED_DIVISION = True
    SAFE_DIVISION = False
    # With an offset, the base parser would shift literal array indexes and map keys.
    INDEX_OFFSET = 0

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ["`"]
        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'", *((f"{n}'", "'") for n in _CHARSETS)]
        UNICODE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("U&'", "'"), ("u&'", "'")]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
        IDENTIFIER_ESCAPES = ["`"]
        COMMANDS: ClassVar[set[TokenType]] = set()
        VAR_SINGLE_TOKENS = {"$"}
        KEYWORDS = {
            **{
                word: token
                for word, token in tokens.Tokenizer.KEYWORDS.items()
                if word not in _REMOVED_KEYWORDS
            },
            "BYTES": TokenType.VARBINARY,
            "ROW": TokenType.STRUCT,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
            "MATCH_CONDITION": TokenType.MATCH_CONDITION,
        }

    class Parser(MatchRecognizeParser):
        TABLE_ALIAS_TOKENS = parser.Parser.TABLE_ALIAS_TOKENS - {TokenType.MATCH_CONDITION}
        IS_PREDICATE_PRECEDENCE = parser.IsPredicatePrecedence.COMPARISON
        FUNCTIONS = {**supported.BUILDERS, **GROUP_WINDOWS, **PATTERN_FUNCTIONS}
        FUNCTION_PARSERS = closed({
            **{name: parser.Parser.FUNCTION_PARSERS[name] for name in _BASE_PARSERS},
            "OVERLAY": lambda self: self._parse_placing(),
            "JSON_ARRAY": lambda self: self._parse_json_array(),
            "JSON_ARRAYAGG": lambda self: self._parse_array_of_rows(),
            "JSON_EXISTS": lambda self: self._parse_json("JSON_EXISTS"),
            "JSON_OBJECT": lambda self: self._parse_pairs(),
            "JSON_OBJECTAGG": lambda self: self._parse_object_of_rows(),
            "JSON_QUERY": lambda self: self._parse_json("JSON_QUERY"),
            "JSON_VALUE": lambda self: self._parse_json("JSON_VALUE"),
        })  # fmt: skip
        PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
            **parser.Parser.PRIMARY_PARSERS,
            TokenType.UNICODE_STRING: lambda self, token: self._parse_code_points(token),
        }
        TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {
            kind: lambda self, this, kind: _timestamp_literal(this, kind)
            for kind in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
        }
        VERSION_PHRASES: ClassVar[dict[tuple[str, ...], str]] = {
            **parser.Parser.VERSION_PHRASES,
            ("FOR", "SYSTEM_VERSION"): "VERSION",
        }
        NO_PAREN_FUNCTION_PARSERS = {
            "CASE": lambda self: self._parse_case(),
        }
        NO_PAREN_FUNCTIONS = {
            TokenType.CURRENT_DATE: lambda: current_time("CURRENT_DATE"),
            TokenType.CURRENT_TIME: lambda: current_time("LOCALTIME"),
            TokenType.CURRENT_TIMESTAMP: lambda: current_time("CURRENT_TIMESTAMP"),
            TokenType.LOCALTIME: lambda: current_time("LOCALTIME"),
            TokenType.LOCALTIMESTAMP: lambda: current_time("LOCALTIMESTAMP"),
        }

        def _is_predicate_ahead(self) -> bool:
            """Whether IS NULL, IS TRUE, … is next, which bind less than `=`; IS DISTINCT more."""
            after = self._tokens[self._index + 1 : self._index + 3]
            return super()._is_predicate_ahead() and all(
                token.token_type != TokenType.DISTINCT for token in after
            )

        def _parse_hint(self) -> exp.Hint | None:
            if not self._match(TokenType.HINT):
                return None
            token = self._prev
            return exp.Hint(expressions=[exp.Var(this=token.text)]).update_positions(token)

        _parse_from = _placed(MatchRecognizeParser._parse_from)
        _parse_join = _placed(MatchRecognizeParser._parse_join)
        _parse_where = _placed(MatchRecognizeParser._parse_where)
        _parse_with = _placed(MatchRecognizeParser._parse_with)

        def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            first = self._index
            table = super()._parse_table(*args, **kwargs)
            self._take_hints()
            if table is None:
                return None
            table_hints = [
                token
                for start, token in sorted(self._hints.items())
                if start >= self._tokens[first].start
            ]
            for token in table_hints:
                del self._hints[token.start]
            if table_hints:
                hints = [exp.Var(this=t.text).update_positions(t) for t in table_hints]
                table.meta["hints"] = hints
            return table

        def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Any:
            table = super()._parse_table_parts(*args, **kwargs)
            self._take_hints()
            return table

        def _parse_version(self) -> exp.Version | None:
            start, first = self._curr, self._index
            version = super()._parse_version()
            if version is not None:
                words = [token.text.upper() for token in self._tokens[first : first + 4]]
                if version.args.get("kind") == "AS OF" and "OF" not in words:
                    self.raise_error("Expecting AS OF", self._tokens[first + 2])
                if version.args.get("kind") != "AS OF":
                    raise FlinkParseError(
                        "only AS OF a point in time is supported; write FOR SYSTEM_TIME AS OF …",
                        start,
                        unsupported=True,
                    )
                version.update_positions(start)
                self._take_hints()
            return version

        def _take_hints(self) -> None:
            while self._match(TokenType.HINT):
                self._hints[self._prev.start] = self._prev

        def reset(self) -> None:
            super().reset()
            # Keyed by offset: the base parser backtracks and may read a hint twice.
            self._hints: dict[int, Token] = {}

        def _parse_table_alias(
            self, alias_tokens: Collection[TokenType] | None = None
        ) -> exp.TableAlias | None:
            if self._curr.token_type == TokenType.STRING:
                raise FlinkParseError("an alias must be a name, not a string", self._curr)
            return super()._parse_table_alias(alias_tokens)

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            token = self._curr
            try:
                if token and self._next.token_type == TokenType.L_PAREN:
                    declaration = self._declaration(token)
                    if declaration is not None:
                        return self._parse_declared(declaration)
                    if self._is_unknown_function(token):
                        message = supported.unknown(token.text)
                        raise FlinkParseError(message, token, unsupported=True)
                    self._check_count(token)
                call = super()._parse_function_call(*args, **kwargs)
                if call is not None and "start" not in call.meta:
                    call.update_positions(token)
                return call
            except ArgumentError as error:
                unsupported = error.unsupported
                raise FlinkParseError(str(error), token, unsupported=unsupported) from None

        def _check_count(self, token: Token) -> None:
            """Check the number of arguments where the base's parser of a function does not."""
            counts = _COUNTS.get(token.text.upper())
            if counts is None:
                return
            depth = commas = 0
            for inner in self._tokens[self._index + 1 :]:
                depth += (inner.token_type in _OPENING) - (inner.token_type in _CLOSING)
                commas += depth == 1 and inner.token_type == TokenType.COMMA
                if not depth:
                    break
            empty = self._tokens[self._index + 2].token_type == TokenType.R_PAREN
            supported.check_count(token.text.upper(), 0 if empty else commas + 1, *counts)

        def _declaration(self, token: Token) -> Declaration | None:
            """The declared Python function that is called at a token, if any."""
            if token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
                return None
            declaration = self.script.functions.get(token.text.lower())
            if declaration is not None and self._prev.token_type == TokenType.DOT:
                raise FlinkParseError(
                    "a Python function belongs to the script, not to a database; write "
                    f"{declaration.name}(…)",
                    token,
                )
            return declaration

        def _parse_declared(self, declaration: Declaration) -> exp.Expr:
            token = self._curr
            self._advance(2)
            arguments: list[exp.Expr] = []
            if self._curr.token_type != TokenType.R_PAREN:
                arguments = self._parse_csv(self._parse_disjunction)
            self._match_r_paren()
            self._expect(not any(isinstance(each, exp.Star) for each in arguments), ")")
            return declared_call(declaration, arguments).update_positions(token)

        def _is_unknown_function(self, token: Token) -> bool:
            name = token.text.upper()
            supported = name in self.FUNCTIONS or name in self.FUNCTION_PARSERS
            if supported and self._prev.token_type != TokenType.DOT:
                return False
            # A name after a dot is a database's function, and no database has functions here.
            # FUNC_TOKENS include names of types, which the base would parse as functions.
            return (
                token.token_type in self.FUNC_TOKENS and token.token_type not in _NOT_FUNCTION_NAMES
            )

        def _parse_code_points(self, token: Token) -> exp.Expr:
            """U&'…' [UESCAPE 'c']."""
            escape = "\\"
            if self._match_text_seq("UESCAPE"):
                escape = self._curr.text
                self._advance()
                if len(escape) != 1 or self._prev.token_type != TokenType.STRING:
                    raise FlinkParseError("UESCAPE takes a string of one character", self._prev)
            try:
                return texts.of_code_points(token.text, escape)
            except ArgumentError as error:
                raise FlinkParseError(str(error), token) from None

        def _parse_placing(self) -> exp.Expr:
            """OVERLAY(text PLACING new FROM start [FOR length]), or with commas."""
            parts = self._parse_csv(self._parse_bitwise)
            for word in ("PLACING", "FROM", "FOR"):
                if self._match_text_seq(word):
                    parts += self._parse_csv(self._parse_bitwise)
            return supported.BUILDERS["OVERLAY"](parts)

        def _parse_interval(
            self, require_interval: bool = True, parse_function_unit: bool = True
        ) -> Any:
            """INTERVAL 'text' unit [TO unit]; a precision is parsed and has no effect."""
            index = self._index
            if not self._match(TokenType.INTERVAL):
                return None
            value = self._parse_primary() or self._parse_term()
            if value is None or _unit_word(self._curr) not in _INTERVAL_UNITS:
                self._retreat(index)
                return None
            first = self._parse_interval_unit()
            if not self._match_text_seq("TO"):
                interval = exp.Interval(this=_as_string(value), unit=exp.Var(this=first))
                return self.expression(interval)
            second = self._parse_interval_unit()
            if not (isinstance(value, exp.Literal) and value.is_string):
                self.refuse("an INTERVAL of two units takes a string, such as INTERVAL '1-06' …")
            try:
                return intervals.of_two_units(value.name, first, second)
            except ArgumentError as error:
                raise FlinkParseError(str(error), self._prev) from None

        def _parse_interval_unit(self) -> str:
            word = _unit_word(self._curr)
            self._expect(word in _INTERVAL_UNITS, "a unit of time")
            self._advance()
            if self._match(TokenType.L_PAREN):
                self._parse_csv(self._parse_number)
                self._match_r_paren()
            return word

        def _parse_case(self) -> exp.Expr | None:
            """CASE [value] WHEN a, b THEN …; only a CASE with a value may list several."""
            value = self._parse_disjunction()
            branches, otherwise = [], None
            while self._match(TokenType.WHEN):
                conditions = self._parse_csv(self._parse_disjunction)
                self._expect(self._match(TokenType.THEN), "THEN")
                then = self._parse_disjunction()
                self._expect(value is not None or len(conditions) == 1, "THEN")
                for number, condition in enumerate(conditions):
                    # Copying the first, too, would be quadratic in the depth of nested CASEs.
                    true = then.copy() if then and number else then
                    branches.append(exp.If(this=condition, true=true))
            self._expect(branches, "WHEN")
            if self._match(TokenType.ELSE):
                otherwise = self._parse_disjunction()
            self._expect(self._match(TokenType.END), "END")
            return self.expression(exp.Case(this=value, ifs=branches, default=otherwise))

        def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
            word = _unquoted_word(this) if self._curr.token_type == TokenType.L_BRACKET else ""
            if word == "MULTISET":
                self.refuse("multisets are not supported; write ARRAY[…]", self._prev)
            if word != "MAP":
                return super()._parse_bracket(this)
            token = self._prev
            self._advance()
            parts = self._parse_csv(self._parse_disjunction)
            self._expect(self._match(TokenType.R_BRACKET), "]")
            if len(parts) % 2:
                raise FlinkParseError("MAP takes pairs: MAP[key, value, …]", token)
            keys, values = (exp.Array(expressions=parts[first::2]) for first in (0, 1))
            return super()._parse_bracket(exp.Map(keys=keys, values=values))


def _timestamp_literal(this: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """TIMESTAMP '…' with its precision: the number of digits written after the seconds."""
    if isinstance(this, exp.Literal) and not kind.expressions:
        digits = len(this.name.strip().partition(".")[2])
        if digits <= _MOST_DIGITS:
            kind = exp.DataType(
                this=exp.DType.TIMESTAMP,
                expressions=[exp.DataTypeParam(this=exp.Literal.number(digits))],
            )
    return exp.Cast(this=this, to=kind)


def _unit_word(token: Token | None) -> str:
    return str(token.text).upper().removesuffix("S") if token else ""


def _as_string(value: exp.Expr) -> exp.Expr:
    is_number = isinstance(value, exp.Literal) and not value.is_string
    return exp.Literal.string(value.name) if is_number else value


def _unquoted_word(node: exp.Expr | None) -> str:
    """The upper-case word of a node that is one unquoted name; empty for any other node."""
    if not isinstance(node, exp.Column) or node.table or not isinstance(node.this, exp.Identifier):
        return ""
    return "" if node.this.quoted else node.name.upper()
