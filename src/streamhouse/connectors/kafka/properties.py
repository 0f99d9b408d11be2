"""Kafka's client properties (`properties.*`), from Java's names to librdkafka's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from streamhouse.errors import OptionError
from streamhouse.options import choice, table_of

PREFIX = "properties."
SERVERS, GROUP, RESET = "bootstrap.servers", "group.id", "auto.offset.reset"
_TABLE = table_of(__package__, "properties.toml")
_JAVA_ONLY = frozenset(_TABLE["java_only"])
_VALUES: Mapping[str, Sequence[str]] = _TABLE["values"]
_LOGIN = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_PEM: Mapping[str, str] = _TABLE["pem"]
_ADVICE = (
    "export the certificates as PEM, for instance with `keytool -exportcert -rfc`, and set "
    f"'{PREFIX}ssl.ca.location' to that file"
)


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's configuration from a table's options; raises `OptionError`."""
    given = {
        key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)
    }
    config: dict[str, str] = {}
    for key, value in given.items():
        if key in _JAVA_ONLY or key in ("ssl.truststore.type", "ssl.keystore.type"):
            continue
        if key == "sasl.jaas.config":
            config.update(_login(value))
        elif key == "ssl.truststore.location":
            config["ssl.ca.location"] = _pem(given, "ssl.truststore", value)
        elif key == "ssl.keystore.location":
            config.update(_keystore(given, value))
        elif key == "ssl.endpoint.identification.algorithm":
            config[key] = _allowed(key, value or "none")
        else:
            config[_PEM.get(key, key)] = _allowed(key, value)
    return config


def _allowed(key: str, value: str) -> str:
    """The value, spelt as in `_VALUES` if the property is there; raises `OptionError`."""
    allowed = _VALUES.get(key)
    if allowed is None:
        return value
    spelt = {one.lower(): one for one in allowed}.get(value.lower(), value)
    return choice(PREFIX + key, spelt, allowed)


def _login(jaas: str) -> dict[str, str]:
    found = {}
    for name, quoted, single, bare in _LOGIN.findall(jaas):
        found[f"sasl.{name}"] = re.sub(r"\\(.)", r"\1", quoted) or single or bare
    if "sasl.username" not in found or "sasl.password" not in found:
        raise OptionError(
            f"option '{PREFIX}sasl.jaas.config' has no username and password; set "
            f"'{PREFIX}sasl.username' and '{PREFIX}sasl.password' instead"
        )
    return found


def _pem(given: Mapping[str, str], store: str, path: str) -> str:
    kind = given.get(f"{store}.type", "JKS")
    if kind.upper() != "PEM" and not path.endswith(".pem"):
        raise OptionError(f"option '{PREFIX}{store}.location' is a {kind} file; {_ADVICE}")
    return path


def _keystore(given: Mapping[str, str], path: str) -> dict[str, str]:
    kind = given.get("ssl.keystore.type", "JKS").upper()
    if kind == "PKCS12" or path.endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": path}
    pem = _pem(given, "ssl.keystore", path)
    return {"ssl.certificate.location": pem, "ssl.key.location": pem}
