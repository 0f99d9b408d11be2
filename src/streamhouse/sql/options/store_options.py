"""Options of an S3-compatible object store, in the spellings of all three of Paimon's cores.

Hadoop's, Paimon's and Flink's names for one option (`s3.access-key`, `fs.s3a.access.key`,
`fs.oss.accessKeyId`) become one canonical option, which the Rust core, the Java core and pypaimon
all understand. What is missing comes from the environment that AWS's tools use.
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import boolean, table_of

S3_PREFIXES = ("fs.s3a.", "fs.s3.", "s3a.", "s3.")
OSS_PREFIXES = ("fs.oss.", "oss.")
PREFIXES = (*S3_PREFIXES, *OSS_PREFIXES)
DEFAULT_REGION = "us-east-1"
"""The region if an end point is given without one; few stores but Amazon's have regions."""

ENDPOINT, REGION = "s3.endpoint", "s3.region"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "s3.access-key", "s3.secret-key", "s3.session.token"
PATH_STYLE = "s3.path.style.access"
CONDITIONAL = "s3.conditional-writes"
"""`false`: the store ignores conditions of writes, and only one machine writes to it."""

_S3_SCHEMES, _OSS_SCHEME = ("s3", "s3a", "s3n"), "oss"
_TABLE = table_of(__package__, "store_options.toml")
_CANONICAL: Mapping[str, Sequence[str]] = _TABLE["canonical"]
_NAMES = {name: key for key, names in _CANONICAL.items() for name in names}
_IGNORED = ("impl",)
_VIRTUAL_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".aliyuncs.com")
"""Hosts of end points that take the bucket as part of the host name."""


def is_object_store(location: str) -> bool:
    """Whether a location is in an S3-compatible store (`s3://`, `s3a://`, `s3n://`, `oss://`)."""
    return _scheme(location) in (*_S3_SCHEMES, _OSS_SCHEME)


def s3_location(location: str) -> str:
    """The location as `s3://bucket/path`, whichever scheme names the store."""
    if not is_object_store(location):
        return location
    return f"s3://{location.partition('://')[2].rstrip('/')}"


def is_store_option(key: str) -> bool:
    """Whether an option, by its prefix, is one of an object store."""
    return _prefix(key) is not None


def check_store_option(key: str, where: str) -> bool:
    """Whether an option is one of an object store; `OptionError` if it is misspelt."""
    prefix = _prefix(key)
    if prefix is None:
        return False
    _canonical(key, prefix, where)
    return True


def named_options(options: Mapping[str, str], where: str) -> dict[str, str]:
    """The catalog's options with canonical names for those of its object store.

    Raises `OptionError` for an unknown option of a store, and for a warehouse in a file system that
    is not supported. Options of OSS count for `oss://` only.
    """
    _check_scheme(options)
    in_oss = _scheme(options.get("warehouse", "")) == _OSS_SCHEME
    result: dict[str, str] = {}
    for key, value in options.items():
        prefix = _prefix(key)
        name = key if prefix is None else _canonical(key, prefix, where)
        if name is not None and (prefix not in OSS_PREFIXES or in_oss):
            result[name] = value
    return result


def canonical_options(options: Mapping[str, str], where: str = "the warehouse") -> dict[str, str]:
    """The catalog's options with canonical names, complete.

    Adds the end point and the region that the environment names (`AWS_ENDPOINT_URL_S3`,
    `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION`), the default region of an end point, and
    whether the bucket is part of the path. Raises `OptionError` for an unknown option of a store.
    """
    return dict(_canonical_options(tuple(options.items()), where, _environment()))


def _check_scheme(options: Mapping[str, str]) -> None:
    """Paimon's cores would retry without an end, or fail late."""
    location = options.get("warehouse", "")
    remote = "://" in location and not location.startswith("file:")
    # The warehouse of a REST catalog is the name of one on its server.
    if remote and not is_object_store(location) and options.get("metastore") != "rest":
        # The rest of the location may contain a password.
        raise OptionError(
            f"the warehouse is at {location.partition('://')[0]}://…, which is not supported; give "
            "a directory (also file:///path), or s3://bucket/path (also s3a://, s3n://, oss://)"
        )


@lru_cache(maxsize=64)
def _canonical_options(
    items: tuple[tuple[str, str], ...], where: str, environment: tuple[str | None, str | None]
) -> tuple[tuple[str, str], ...]:
    result = named_options(dict(items), where)
    if is_object_store(result.get("warehouse", "")) or any(key in result for key in _CANONICAL):
        if "warehouse" in result:
            result["warehouse"] = s3_location(result["warehouse"])
        _complete(result, environment)
    return tuple(result.items())


def _complete(store: dict[str, str], environment: tuple[str | None, str | None]) -> None:
    endpoint, region = environment
    if endpoint and ENDPOINT not in store:
        store[ENDPOINT] = endpoint
    if ENDPOINT in store:
        store[ENDPOINT] = _url(store[ENDPOINT])
        region = region or DEFAULT_REGION
        host = urlsplit(store[ENDPOINT]).hostname or ""
        store.setdefault(PATH_STYLE, str(not host.endswith(_VIRTUAL_HOSTS)).lower())
    for key in (PATH_STYLE, CONDITIONAL):
        if key in store:
            store[key] = str(boolean(key, store[key])).lower()
    if region:
        store.setdefault(REGION, region)
    if (ACCESS_KEY in store) != (SECRET_KEY in store):
        given, missing = sorted((ACCESS_KEY, SECRET_KEY), key=lambda key: key not in store)
        raise OptionError(f"option '{given}' needs '{missing}', too: give both, or neither")


def _url(endpoint: str) -> str:
    """The end point with its scheme; `OptionError` if it is not a URL."""
    if "://" not in endpoint:
        host = endpoint.partition("/")[0].rpartition(":")[0] or endpoint
        endpoint = f"{'http' if _is_address(host) else 'https'}://{endpoint}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(
            f"option '{ENDPOINT}': '{endpoint}' is not a URL; write https://host or http://host:port"
        )
    return endpoint.rstrip("/")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _environment() -> tuple[str | None, str | None]:
    def first(*names: str) -> str | None:
        return next((os.environ[name] for name in names if os.environ.get(name)), None)

    return (
        first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        first("AWS_REGION", "AWS_DEFAULT_REGION"),
    )


def _canonical(key: str, prefix: str, where: str) -> str | None:
    """The canonical name of an option; None for one without effect."""
    name = key[len(prefix) :].lower().replace(".", "-").replace("_", "-")
    if name in _IGNORED:
        return None
    if name not in _NAMES:
        displayed = "fs.oss." if prefix in OSS_PREFIXES else "s3."
        known = [f"{displayed}{suffix}" for suffix in _TABLE["shown"][displayed]]
        raise OptionError(f"{where}: unknown option '{key}'; {nearest(key, known)}")
    return _NAMES[name]


def _prefix(key: str) -> str | None:
    return next((prefix for prefix in PREFIXES if key.lower().startswith(prefix)), None)


def _scheme(location: str) -> str:
    return location.partition("://")[0].lower() if "://" in location else ""
