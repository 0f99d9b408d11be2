"""The options of the format `csv`, under Flink's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.options import Option, boolean, check_known

OPTIONS = (
    Option("field-delimiter", "STRING", r"one character between fields; `\t` is a tab", ","),
    Option("disable-quote-character", "BOOLEAN", "whether quotes have no meaning", "false"),
    Option(
        "quote-character", "STRING",
        "encloses a field that contains delimiters, quotes or line breaks; doubled in such a field",
        '"',
    ),
    Option("escape-character", "STRING", "the character after it is taken literally"),
    Option("allow-comments", "BOOLEAN", "whether records that begin with `#` are skipped", "false"),
    Option("array-element-delimiter", "STRING", "separates the elements of an ARRAY", ";"),
    Option("null-literal", "STRING", "the text of null; an empty number or time is null, too"),
    Option(
        "ignore-parse-errors", "BOOLEAN",
        "skip records that cannot be split, and read values that do not fit as null; without a "
        "count, so prefer `bad-records`",
        "false",
    ),
    Option(
        "write-bigdecimal-in-scientific-notation", "BOOLEAN",
        "accepted; decimals are always written without an exponent", "true",
    ),
)  # fmt: skip
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
        known = {option.key: option.default for option in OPTIONS}
        check_known([where + key for key in options], [where + key for key in known], "format csv")

        def flag(key: str) -> bool:
            return boolean(where + key, options.get(key, known[key] or "false"))

        def character(key: str) -> str | None:
            text = options.get(key, known[key])
            if text is None:
                return None
            text = _ESCAPES.get(text, text)
            if len(text) != 1 or text in "\r\n":
                raise OptionError(f"option '{where}{key}' must be one character, not '{text}'")
            return text

        # Only checked.
        flag("write-bigdecimal-in-scientific-notation")
        quote = character("quote-character")
        if flag("disable-quote-character"):
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
            delimiter, quote, escape, flag("allow-comments"),
            options.get("array-element-delimiter", ";"), options.get("null-literal"),
            flag("ignore-parse-errors"),
        )  # fmt: skip
