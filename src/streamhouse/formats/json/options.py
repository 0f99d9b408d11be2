"""The options of the format `json`, under Flink's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.formats.times import SQL, STANDARDS
from streamhouse.options import Option, boolean, check_known, choice

NULL_KEY_MODES = ("FAIL", "DROP", "LITERAL")
OPTIONS = (
    Option(
        "fail-on-missing-field", "BOOLEAN",
        "whether a record without one of the columns is a bad record; else the column is null",
        "false",
    ),
    Option(
        "ignore-parse-errors", "BOOLEAN",
        "skip records that are not JSON, and read values that do not fit as null; without a count, "
        "so prefer `bad-records`",
        "false",
    ),
    Option(
        "timestamp-format.standard", "`SQL`, `ISO-8601`",
        "`2024-05-01 12:00:00.5` or `2024-05-01T12:00:00.5`; a TIMESTAMP_LTZ ends with `Z`", "SQL",
    ),
    Option(
        "map-null-key.mode", "`FAIL`, `DROP`, `LITERAL`",
        "when a MAP with a null key is written: fail, leave the entry out, or write "
        "`map-null-key.literal`",
        "FAIL",
    ),
    Option("map-null-key.literal", "STRING", "the key written for a null key", "null"),
    Option(
        "encode.decimal-as-plain-number", "BOOLEAN",
        "accepted; decimals are always written without an exponent", "false",
    ),
    Option(
        "encode.ignore-null-fields", "BOOLEAN", "whether null columns are left out when written",
        "false",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class JsonOptions:
    """The options of a table's JSON, checked."""

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    standard: str = SQL
    null_key_mode: str = "FAIL"
    null_key_literal: str = "null"
    ignore_null_fields: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> JsonOptions:
        """`where`: the prefix of the options; raises `OptionError`."""
        known = {option.key: option.default for option in OPTIONS}
        check_known([where + key for key in options], [where + key for key in known], "format json")

        def flag(key: str) -> bool:
            return boolean(where + key, options.get(key, "false"))

        def one_of(key: str, allowed: tuple[str, ...], default: str) -> str:
            return choice(where + key, options.get(key, default), allowed)

        flag("encode.decimal-as-plain-number")
        parsed = cls(
            flag("fail-on-missing-field"),
            flag("ignore-parse-errors"),
            one_of("timestamp-format.standard", STANDARDS, SQL),
            one_of("map-null-key.mode", NULL_KEY_MODES, "FAIL"),
            options.get("map-null-key.literal", "null"),
            flag("encode.ignore-null-fields"),
        )
        if parsed.fail_on_missing_field and parsed.ignore_parse_errors:
            raise OptionError(
                f"options '{where}fail-on-missing-field' and '{where}ignore-parse-errors' exclude "
                "each other; leave one of them out"
            )
        return parsed
