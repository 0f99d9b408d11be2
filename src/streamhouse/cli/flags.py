"""Flags and arguments of commands (`flags.toml`), and the values of those that several share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from streamhouse.durable_files import replace_text
from streamhouse.errors import OptionError, TableError
from streamhouse.options import table_of
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.secret_references import resolve_secrets

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.runtime.spark.settings import SparkOptions


_Function = TypeVar("_Function", bound=Callable[..., None])
_TABLE: Mapping[str, Any] = table_of(__package__, "flags.toml")
_SHARED = "shared"
_KINDS: Mapping[str, tuple[Any, Any]] = {
    "text": (str, ""),
    "optional": (str | None, None),
    "path": (Path | None, None),
    "switch": (bool, False),
    "repeated": (list[str] | None, None),
    "required": (str, Parameter.empty),
    "required-list": (list[str], Parameter.empty),
}
"""The type and the default of flags that are keywords of `**flags`."""


DEFAULT_WAREHOUSE = "./warehouse"
DEFAULT_MASTER = "local[2]"


def with_flags(*sections: str) -> Callable[[_Function], _Function]:
    """Make the parameters of a command's function flags, or arguments, of their names.

    `flags.toml` describes them, in the first of the sections that has them, or else in `shared`.
    Types and defaults are those of the parameters. The keywords of a function with
    `**flags` are all others of the sections.
    """
    entries: dict[str, Mapping[str, Any]] = {}
    for section in sections:
        for name, entry in _TABLE[section].items():
            shared = {} if "help" in entry else _TABLE[_SHARED][name]
            entries.setdefault(name, {**shared, **entry})

    def declared(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = list(_parameters(signature, entries))
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters
        )
        return function

    return declared


def names_of(section: str) -> frozenset[str]:
    """The names of the flags in a section."""
    return frozenset(_TABLE[section])


def _parameters(
    signature: inspect.Signature, entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[Parameter]:
    for name, parameter in signature.parameters.items():
        if parameter.kind != Parameter.VAR_KEYWORD:
            yield _declared(parameter, entries.get(name) or _TABLE[_SHARED][name])
            continue
        for keyword, entry in entries.items():
            if keyword not in signature.parameters:
                yield _keyword(keyword, entry)


def _keyword(name: str, entry: Mapping[str, Any]) -> Parameter:
    kind, default = _KINDS[entry.get("kind", "text")]
    default = entry.get("default", default)
    return _declared(
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind), entry
    )


def _declared(parameter: Parameter, entry: Mapping[str, Any]) -> Parameter:
    shown: dict[str, Any] = {
        key: entry.get(key) for key in ("metavar", "help", "envvar", "min", "max")
    }
    if entry.get("argument"):
        made = typer.Argument(**shown)
    else:
        name = entry.get("name") or f"--{parameter.name.replace('_', '-')}"
        made = typer.Option(name, **shown, hidden=entry.get("hidden", False))
    return parameter.replace(annotation=Annotated[parameter.annotation, made])


def write_port(path: str, port: int) -> None:
    """Write the port to a file, atomically: a reader finds all digits or no file."""
    try:
        replace_text(Path(path), f"{port}\n", durable=False)
    except OSError as error:
        raise OptionError(
            f"option '--port-file': {path} cannot be written: {error.strerror}"
        ) from None


class QueryFormat(StrEnum):
    """How `query` prints its rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class TextFormat(StrEnum):
    """How a command prints what it has read: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


def key_values(flag: str, texts: Sequence[str] | None, example: str) -> dict[str, str]:
    """The `key=value` texts of a repeated flag; `OptionError` for one of another form."""
    result = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            # The message does not quote the text, which may be a secret.
            raise OptionError(f"{flag} takes KEY=VALUE, such as {flag} {example}")
        result[key.strip()] = value
    return result


def script_variables(texts: Sequence[str] | None) -> dict[str, str]:
    """The variables of `--set`; `OptionError` for one that is not written `name=value`."""
    return key_values("--set", texts, "day=2026-11-23")


def catalog_options(warehouse: str, options: Sequence[str] | None) -> dict[str, str]:
    """The catalog's options; `OptionError` for one that is not written `key=value`."""
    from streamhouse.sql.options.catalog_options import check_catalog
    from streamhouse.sql.options.store_options import named_options

    given = key_values("--option", options, "s3.region=eu-west-1")
    resolved = resolve_secrets({"warehouse": warehouse, **given}, "--option")
    check_catalog(resolved, "--option")
    return named_options(resolved, "--option")


def absolute(warehouse: str) -> str:
    """The warehouse, by its absolute path if it is a directory on this machine."""
    return os.path.abspath(local_path(warehouse)) if is_local(warehouse) else warehouse


def check_warehouse(catalog: Mapping[str, str]) -> None:
    """Raise an error if a local warehouse's directory, or a remote one's bucket, does not exist.

    `catalog` has the catalog's options. Within 10 seconds.
    """
    warehouse = catalog["warehouse"]
    if not is_local(warehouse):
        check_store(catalog)
    elif not Path(local_path(warehouse)).is_dir():
        raise TableError(
            f"there is no warehouse at '{warehouse}'; set its directory by --warehouse DIR "
            "or the environment variable STREAMHOUSE_WAREHOUSE"
        )


def check_store(catalog: Mapping[str, str]) -> None:
    """Raise an error if the warehouse is in an object store that does not answer."""
    from streamhouse.sql.options.store_options import is_object_store

    if is_object_store(catalog["warehouse"]):
        from streamhouse.paimon.storage.object_store.s3_client import check_bucket

        check_bucket(catalog, catalog["warehouse"])


def open_warehouse(warehouse: str, options: Sequence[str] | None = None) -> Warehouse:
    """Open the warehouse; `TableError` if it is a local directory that does not exist."""
    from streamhouse.paimon.catalog.warehouse import Warehouse

    catalog = catalog_options(warehouse, options)
    check_warehouse(catalog)
    return Warehouse(catalog)


def spark_settings(conf: Sequence[str] | None) -> dict[str, str]:
    """The settings of `--conf`; `OptionError` for one that is not written `key=value`."""
    return key_values("--conf", conf, "spark.driver.memory=2g")


def spark_options(
    master: str, conf: Sequence[str] | None = None, verbose: bool = False
) -> SparkOptions:
    """The options of Spark; `OptionError` for a setting that is not one of Spark's (`spark.…`)."""
    from streamhouse.runtime.spark.settings import SparkOptions

    settings = spark_settings(conf)
    for key in settings:
        if not key.startswith("spark."):
            raise OptionError(
                f"option '--conf': '{key}' is not a setting of Spark, which start with 'spark.'"
            )
    return SparkOptions(master, settings, verbose)
