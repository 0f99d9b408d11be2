"""Options of Flink CDC that have no effect here, or that would change rows and are rejected.

Flink CDC passes all `debezium.*` on to Debezium and all `jdbc.properties.*` to MySQL's JDBC driver.
Here each of them has an effect (`options.KNOWN`), a reason why it has none, or an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamhouse.mysql.tls import OPTIONS as TLS_OPTIONS
from streamhouse.mysql.values.dates import OPTION as ZERO_DATES
from streamhouse.options import by_key, no_effect, table_of

_SECURITY = re.compile(r"^jdbc.*(ssl|tls|certificate|keystore|truststore)", re.IGNORECASE)
DEBEZIUM, JDBC = "debezium.", "jdbc.properties."
LOCK_TIMEOUT = "debezium.snapshot.lock.timeout.ms"
_OWN = frozenset({LOCK_TIMEOUT, ZERO_DATES})
"""Options of Debezium and JDBC with an effect, besides those of TLS."""
_TLS = frozenset(option.key for option in TLS_OPTIONS)

_TABLE = table_of(__package__, "passthrough.toml")
WITHOUT_EFFECT = by_key(_TABLE["without_effect"])
"""Options of Flink CDC that have no effect here, and why; `*` stands for any ending."""
_REFUSED: Mapping[str, str] = _TABLE["refused"]
"""Options that change rows, values or the server: ignoring them would give other results.

A key that ends with a dot, or is followed by one, stands for all that begin so.
"""
_HARMLESS = {
    "debezium.skipped.operations": ("none", "t", ""),
    "debezium.binary.handling.mode": ("none", "bytes"),
}
_ONLY = {
    "schema-change.enabled": (
        ("true",),
        "statements that alter a table are followed; give a sync --schema-change-behavior ignore",
    ),
}
"""Options without effect, with the only values that describe what this connector does."""


def without_effect(key: str) -> str | None:
    """Why an option has no effect here; None if it has one, is unknown or is refused."""
    if key in _TLS or key in _OWN or _refused(key) is not None:
        return None
    if key not in WITHOUT_EFFECT and _SECURITY.search(key):
        # Such as a misspelt 'sslMode', without which a connection might not be encrypted.
        return None
    return no_effect(key, WITHOUT_EFFECT)


def refusal(key: str, value: str) -> str | None:
    """What to do instead of an option that would change rows, values or the server; else None."""
    if key in _TLS or value.strip().lower() in _HARMLESS.get(key, ()):
        return None
    if key in _ONLY:
        values, instead = _ONLY[key]
        return None if value.strip().lower() in values else f"{instead} (it is '{value}')"
    found = _refused(key)
    return None if found is None else _REFUSED[found]


def _refused(key: str) -> str | None:
    for known in _REFUSED:
        if key == known or key.startswith(known if known.endswith(".") else f"{known}."):
            return known
    return None
