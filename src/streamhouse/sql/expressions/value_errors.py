"""Translates DuckDB's errors about values (overflow, bad cast, …) to Flink's terms."""

import re

_TYPES = {
    "INT8": "TINYINT", "INT16": "SMALLINT", "INT32": "INT", "INT64": "BIGINT", "INT128": "DECIMAL",
    "VARCHAR": "STRING", "BLOB": "BYTES", "TIMESTAMP_MS": "TIMESTAMP(3)",
    "TIMESTAMP_NS": "TIMESTAMP(9)", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP_LTZ",
}  # fmt: skip
_RULES = (
    (
        r"Type (?P<source>[\w() ,]+) with value (?P<value>.+?) can't be cast .*destination type "
        r"(?P<target>[\w() ,]+)",
        "{value} does not fit into {target}",
    ),
    (
        r"[Cc]ould not convert string ['\"](?P<value>[-+]?[\d.]+(?:e[-+]?\d+)?)['\"] to '?"
        r"(?P<target>DECIMAL\([\d, ]+\))",
        "{value} does not fit into {target}",
    ),
    (
        r"[Cc]ould not convert string ['\"](?P<value>.*)['\"] to '?(?P<target>[\w() ,]+)",
        "'{value}' is not a valid {target}",
    ),
    (
        r"Casting value \"(?P<value>.+)\" to type (?P<target>[\w() ,]+) failed",
        "{value} does not fit into {target}",
    ),
    (
        r"Overflow in (?P<what>\w+) of (?P<target>[\w(), ]+?) \((?P<value>.+)\)",
        "{value} exceeds {target}",
    ),
    (r"Overflow in (?P<what>\w+) of (?P<target>[\w(), ]+)", "{what} exceeds {target}"),
    (
        r"Could not cast value (?P<value>.+?) (?:from|to) .*?(?P<target>DECIMAL\([\d, ]+\))",
        "{value} does not fit into {target}",
    ),
    (
        r"(?P<target>date|timestamp|time) field (?:value out of range|format): "
        r"\"(?P<value>.*?)\"(?:,|$)",
        "'{value}' is not a valid {target}",
    ),
    (r"[Dd]ivision by zero", "Division by zero"),
    (r"UDF: \w+: (?P<value>.+)", "{value}"),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern, re.DOTALL), text) for pattern, text in _RULES)
_CLASS = re.compile(r"^(?:\w+ )+Error: ")
# From here on a message quotes the generated SQL, which the user did not write, or recommends
# settings and functions that only DuckDB has.
_DUCKDB_DETAILS = re.compile(
    r"\n\n|\nLINE | Use TRY\(|You might want| when casting from source column|!$"
)


def is_of_duckdb(error: Exception) -> bool:
    """Whether an error is one of DuckDB's; Arrow passes some on as an `OSError`."""
    return not isinstance(error, OSError) or _CLASS.match(str(error)) is not None


def readable(text: str) -> str:
    """The message of a `duckdb.Error` without DuckDB's names of types, functions and classes."""
    first = _DUCKDB_DETAILS.split(text.strip())[0]
    for pattern, message in _PATTERNS:
        match = pattern.search(first)
        if match is not None:
            parts = {key: (value or "").strip() for key, value in match.groupdict().items()}
            target, value = parts.get("target", ""), parts.get("value", "")
            # `times.strict_text` and `casts.number_text` put these quotes before a value.
            is_time = value.startswith('"') and target == "INT64"
            parts["target"] = "TIMESTAMP" if is_time else _TYPES.get(target, target)
            parts["value"] = value[1:] if value[:1] in ("'", '"') else value
            return message.format(**parts)
    return _CLASS.sub("", first)
