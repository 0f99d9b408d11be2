"""The options of the format `csv`, under Flink's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, OptionValues, check_known

OPTIONS = DeclaredOptions.of(__package__).options
_ESCAPES = {r"\t": "\t", r"\u0001": "\u0001"}


@dataclass(frozen=True)
class CsvOptions:
    """The checked CSV options of a table; `quote` and `escape` are None if there are none."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comments: bool = False
    array_delimiter: str = ";"
    null_literal: str | None = None
    ignore_parse_errors: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> CsvOptions:
        """Parse the options; `where` is the prefix of their keys in errors.

        Raises `OptionError`.
        """
        known = [where + option.key for option in OPTIONS]
        check_known([where + key for key in options], known, "format csv")
        values = OptionValues(OPTIONS, options, where)

        def character(key: str) -> str | None:
            text = values.text(key)
            if not text and key not in values:
                return None
            text = _ESCAPES.get(text, text)
            if len(text) != 1 or text in "\r\n":
                raise OptionError(f"option '{where}{key}' must be one character, not '{text}'")
            return text

        # Only checked.
        values.boolean("write-bigdecimal-in-scientific-notation")
        quote = character("quote-character")
        if values.boolean("disable-quote-character"):
            if "quote-character" in options:
                raise OptionError(
                    f"options '{where}quote-character' and '{where}disable-quote-character' "
                    "exclude each other; leave one of them out"
                )
            quote = None
        delimiter = character("field-delimiter")
        assert delimiter is not None
        escape = character("escape-character")
        if escape is not None and escape == quote:
            raise OptionError(
                f"option '{where}escape-character' is also the quote character; leave it out: a "
                "quote in a field is doubled"
            )
        if delimiter in (quote, escape):
            raise OptionError(
                f"option '{where}field-delimiter' is also the quote or the escape character; "
                "choose another one"
            )
        return cls(
            delimiter, quote, escape, values.boolean("allow-comments"),
            values.text("array-element-delimiter"), options.get("null-literal"),
            values.boolean("ignore-parse-errors"),
        )  # fmt: skip
