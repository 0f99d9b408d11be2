"""Table options of earlier Paimon releases, by `renamed_options.toml`.

A renamed option is one whose old key Paimon itself still reads. An option that Paimon 1.0 or a
later release dropped has no effect. Older and misspelt keys are unknown options.
"""

import re
from collections.abc import Mapping

from streamhouse.errors import OptionError
from streamhouse.options import table_of

_TABLE = table_of(__package__, "renamed_options.toml")
RENAMED: Mapping[str, Mapping[str, str]] = _TABLE["renamed"]
"""By old keys: the option that it is `now`, and `until` when, the last release with the old one."""
DROPPED: Mapping[str, Mapping[str, str]] = {
    key: group for group in _TABLE["dropped"] for key in group["keys"]
}
"""Options without effect: `until` when they had one, and `why`; `x.` stands for a beginning."""

DEFAULT_VALUE = re.compile(r"fields\.(?P<column>.+)\.default-value")
"""`fields.<column>.default-value` (0.5 to 1.1) is now the column's own default."""

_ENUMERATED = frozenset(_TABLE["enumerated"])
"""Options whose values Paimon reads in any case: Flink may have written `AGGREGATION`."""


def renamed(key: str) -> str:
    """The current name of an option."""
    option = RENAMED.get(key)
    return key if option is None else option["now"]


def current(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options under their current names, and a notice for each that is outdated.

    Options without effect stay as they are. Raises `OptionError` if an option has different values
    under its old and its new name.
    """
    current_options: dict[str, str] = {}
    written_keys: dict[str, str] = {}
    for key, value in options.items():
        name = renamed(key)
        if current_options.get(name, value) != value:
            raise OptionError(
                f"option '{written_keys[name]}' is '{current_options[name]}' and '{key}' is "
                f"'{value}', but both are now option '{name}'; set one of them"
            )
        current_options[name], written_keys[name] = value, key
    return current_options, [text for key in options if (text := _notice(key)) is not None]


def _notice(key: str) -> str | None:
    """The notice about an option of an earlier release; None for a current option."""
    if key in RENAMED:
        now = RENAMED[key]
        return f"option '{key}' (Paimon {now['until']} and before) is now '{now['now']}'"
    default = DEFAULT_VALUE.fullmatch(key)
    if default is not None:
        return (
            f"option '{key}' (Paimon 1.1 and before) is now the default of column "
            f"'{default['column']}': it replaces nulls in rows written from now on"
        )
    dropped = dropped_option(key)
    if dropped is None:
        return None
    return (
        f"option '{key}' (Paimon {dropped['until']} and before) no longer has an effect: "
        f"{dropped['why']}"
    )


def dropped_option(key: str) -> Mapping[str, str] | None:
    """The entry of an option that no longer has an effect; None for any other."""
    return DROPPED.get(key) or DROPPED.get(key[: key.find(".") + 1])


def stored(options: Mapping[str, str]) -> dict[str, str]:
    """The options of an existing table under their current names, enumerated values in lower case.

    As in Paimon, a value under the current name takes precedence over one under an old name.
    """
    stored_options = {key: value for key, value in options.items() if key not in RENAMED}
    for key, value in options.items():
        stored_options.setdefault(renamed(key), value)
    for key in _ENUMERATED & stored_options.keys():
        stored_options[key] = stored_options[key].lower()
    return stored_options


def defaults(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options without `fields.<column>.default-value`, and each column's default."""
    rest, column_defaults = {}, {}
    for key, value in options.items():
        match = DEFAULT_VALUE.fullmatch(key)
        if match is None:
            rest[key] = value
        else:
            column_defaults[match["column"]] = value
    return rest, column_defaults
