"""Parses the arguments of JSON functions, which have clauses such as RETURNING and ON EMPTY."""

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from streamhouse.sql.functions import json, supported
from streamhouse.sql.functions.expression_builders import try_cast
from streamhouse.sql.parser.strict_parser import FlinkParseError, StrictParser

_RETURNED = {"JSON_QUERY": ("TEXT", "VARCHAR", "ARRAY<TEXT>", "ARRAY<VARCHAR>")}


class JsonFunctionsParser(StrictParser):
    """Parses JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_OBJECT, JSON_ARRAY and their aggregates."""

    def _parse_json(self, name: str) -> exp.Expr:
        """JSON_VALUE(text, path [RETURNING type] [… ON EMPTY] [… ON ERROR]) and similar.

        A value that cannot be cast to the RETURNING type is null; JSON_QUERY returns a text, or an
        array of texts.
        """
        arguments = self._parse_csv(self._parse_disjunction)
        returning = self._curr
        kind = None
        if self._match_text_seq("RETURNING"):
            kind = self._parse_types(with_collation=True)
        if kind is not None and name != "JSON_VALUE" and kind.sql() not in _RETURNED.get(name, ()):
            self.refuse(f"{name} takes no RETURNING of this type; leave it out", returning)
        supported.check_count(name, len(arguments), 2, 2)
        if name == "JSON_EXISTS":
            return json.exists_or(arguments, self._parse_exists_error())
        if name == "JSON_QUERY":
            found = self._parse_query(arguments)
            is_array = kind is not None and kind.this == exp.DType.ARRAY
            return try_cast(try_cast(found, "JSON"), "VARCHAR[]") if is_array else found
        scalar = json.value_or(arguments, *self._parse_handlers("DEFAULT"))
        return scalar if kind is None else exp.TryCast(this=scalar, to=kind)

    def _parse_exists_error(self) -> exp.Expr | None:
        """TRUE, FALSE, UNKNOWN or ERROR (None), then ON ERROR; FALSE without this clause."""
        values = {"TRUE": exp.true(), "FALSE": exp.false(), "UNKNOWN": exp.Null()}
        word = self._curr.text.upper()
        if word not in (*values, "ERROR"):
            return exp.false()
        self._advance()
        self._expect(self._match_text_seq("ON", "ERROR"), "ON ERROR")
        return values.get(word)

    def _parse_query(self, arguments: list[exp.Expr]) -> exp.Expr:
        """The end of JSON_QUERY: its wrapper, and its values ON EMPTY and ON ERROR."""
        wrapper = ""
        if self._match_text_seq("WITH"):
            wrapper = "UNCONDITIONAL"
            if self._match_text_seq("CONDITIONAL"):
                wrapper = "CONDITIONAL"
            else:
                self._match_text_seq("UNCONDITIONAL")
        if wrapper or self._match_text_seq("WITHOUT"):
            self._match_text_seq("ARRAY")
            self._expect(self._match_text_seq("WRAPPER"), "WRAPPER")
        return json.query_or(arguments, wrapper, *self._parse_handlers("EMPTY"))

    def _parse_handlers(self, third: str) -> tuple[exp.Expr | None, exp.Expr | None]:
        """NULL, ERROR (None) or `third` ON EMPTY and ON ERROR, in any order; NULL by default."""
        handlers: dict[str, exp.Expr | None] = {"EMPTY": exp.Null(), "ERROR": exp.Null()}
        open_ = list(handlers)
        while self._curr and self._curr.text.upper() in ("NULL", "ERROR", third):
            word = self._curr.text.upper()
            self._advance()
            value: exp.Expr | None = None if word == "ERROR" else exp.Null()
            if word == "DEFAULT":
                value = self._parse_disjunction()
            elif word == "EMPTY" and self._match_text_seq("OBJECT"):
                value = exp.Literal.string("{}")
            elif word == "EMPTY":
                self._match_text_seq("ARRAY")
                value = exp.Literal.string("[]")
            self._expect(self._match_text_seq("ON"), "ON")
            event = self._curr.text.upper() if self._curr else ""
            self._expect(event in open_, "EMPTY or ERROR")
            self._advance()
            open_.remove(event)
            handlers[event] = value
        return handlers["EMPTY"], handlers["ERROR"]

    def _parse_pairs(self) -> exp.Expr:
        """JSON_OBJECT([KEY] key VALUE value, …, or key: value, … [NULL|ABSENT ON NULL])."""
        pairs: list[tuple[exp.Expr, exp.Expr]] = []
        while self._curr and self._curr.token_type != TokenType.R_PAREN:
            if self._omits_nulls(peek=True) is not None:
                break
            pairs.append(self._parse_pair("JSON_OBJECT"))
            if not self._match(TokenType.COMMA):
                break
        return json.made(json.json_object(pairs, bool(self._omits_nulls())))

    def _parse_object_of_rows(self) -> exp.Expr:
        """JSON_OBJECTAGG([KEY] key VALUE value [NULL|ABSENT ON NULL])."""
        key, value = self._parse_pair("JSON_OBJECTAGG")
        return json.object_of_rows(key, value, bool(self._omits_nulls()))

    def _parse_pair(self, function: str) -> tuple[exp.Expr, exp.Expr]:
        """[KEY] key VALUE value, or key: value."""
        self._match_text_seq("KEY")
        key = self._parse_bitwise()
        self._expect(self._match_text_seq("VALUE") or self._match(TokenType.COLON), "VALUE")
        value = self._parse_disjunction()
        if key is None or value is None:
            raise FlinkParseError(f"{function} takes a key and a value", self._prev)
        return key, value

    def _parse_array_of_rows(self) -> exp.Expr:
        """JSON_ARRAYAGG(value [NULL|ABSENT ON NULL])."""
        value = self._parse_disjunction()
        if value is None:
            raise FlinkParseError("JSON_ARRAYAGG takes a value", self._prev)
        return json.array_of_rows(value, self._omits_nulls() is not False)

    def _parse_json_array(self) -> exp.Expr:
        """JSON_ARRAY(value, … [NULL|ABSENT ON NULL])."""
        values = []
        if self._omits_nulls(peek=True) is None and self._curr.token_type != TokenType.R_PAREN:
            values = self._parse_csv(self._parse_disjunction)
        absent = self._omits_nulls()
        return json.made(json.json_array(values, absent is not False))

    def _omits_nulls(self, peek: bool = False) -> bool | None:
        """True for ABSENT ON NULL, False for NULL ON NULL, None if neither comes next."""
        index = self._index
        for word, absent in (("ABSENT", True), ("NULL", False)):
            if self._match_text_seq(word, "ON", "NULL"):
                if peek:
                    self._retreat(index)
                return absent
        return None
