"""The options of the format `json`, under Flink's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.formats.times import SQL
from streamhouse.options import DeclaredOptions, OptionValues, check_known

OPTIONS = DeclaredOptions.of(__package__).options


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
        known = [where + option.key for option in OPTIONS]
        check_known([where + key for key in options], known, "format json")
        values = OptionValues(OPTIONS, options, where)
        values.boolean("encode.decimal-as-plain-number")
        parsed = cls(
            values.boolean("fail-on-missing-field"),
            values.boolean("ignore-parse-errors"),
            values.choice("timestamp-format.standard"),
            values.choice("map-null-key.mode"),
            values.text("map-null-key.literal"),
            values.boolean("encode.ignore-null-fields"),
        )
        if parsed.fail_on_missing_field and parsed.ignore_parse_errors:
            raise OptionError(
                f"options '{where}fail-on-missing-field' and '{where}ignore-parse-errors' exclude "
                "each other; leave one of them out"
            )
        return parsed
