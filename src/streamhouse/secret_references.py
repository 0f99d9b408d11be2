"""Options by reference: `'password' = '${env:NAME}'`, or a secret as `'${file:/path}'`.

docs/decisions/147-secrets-and-variables.md says where they are allowed.
"""

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from streamhouse.close_matches import closest
from streamhouse.errors import OptionError
from streamhouse.options import is_secret

ALLOWED = "STREAMHOUSE_SECRETS"
"""The environment variable with the allowed references, such as `env:MYSQL_*,file:/run/secrets/*`.

Unset: all are allowed.
"""
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_VARIABLE = re.compile(r"\$\{(env):([^}]*)\}")
_MAX_BYTES = 1 << 20


def resolve_secrets(options: Mapping[str, str], where: str, keep: bool = False) -> dict[str, str]:
    """The options, with what their values refer to; driver only.

    In any option `${env:NAME}` stands for an environment variable. The value of one with the name
    of a secret can be a reference as a whole, also to a file; with `keep` it stays one, but is
    checked. Raises `OptionError`, without a secret, if what it refers to is not there or not
    allowed.
    """
    resolved = {}
    for key, value in options.items():
        if not is_secret(key):
            resolved[key] = _VARIABLE.sub(partial(_value, key, where), value)
        elif (match := _REFERENCE.fullmatch(value.strip())) is not None:
            secret = _value(key, where, match)
            resolved[key] = value if keep else secret
        else:
            resolved[key] = value
    return resolved


def _value(key: str, where: str, match: re.Match[str]) -> str:
    kind, name = match[1], match[2].strip()
    option = f"{where}: option '{key}'"
    if not name:
        raise OptionError(f"{option} has an empty reference; write ${{env:NAME}} or ${{file:PATH}}")
    if kind == "file":
        name = os.path.abspath(name)
    _check_allowed(option, f"{kind}:{name}")
    return _from_environment(option, name) if kind == "env" else _from_file(option, name)


def _check_allowed(option: str, reference: str) -> None:
    patterns = os.environ.get(ALLOWED)
    if patterns is None:
        return
    if not any(fnmatchcase(reference, pattern.strip()) for pattern in patterns.split(",")):
        raise OptionError(
            f"{option} refers to {reference}, which is not allowed here; whoever runs the server "
            f"can allow it in the environment variable {ALLOWED}, such as {ALLOWED}='{reference}'"
        )


def _from_environment(option: str, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        close = closest(name, os.environ, 0.7)
        hint = "" if close is None else f"; did you mean {close}?"
        raise OptionError(
            f"{option} refers to the environment variable {name}, which is not set{hint}"
        )
    return value


def _from_file(option: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise OptionError(f"{option} refers to {path}, which cannot be read: {reason}") from None
    # Editors and `echo` end a file with a line break, which is not part of the secret.
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or len(content) > _MAX_BYTES:
        size = "empty" if not secret else "too large"
        raise OptionError(f"{option} refers to {path}, which is {size}")
    return secret
