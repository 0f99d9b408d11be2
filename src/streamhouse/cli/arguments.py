"""Values of flags that several commands share: formats, options, the warehouse they name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.errors import OptionError, TableError
from streamhouse.secret_references import resolve_secrets

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.runtime.spark.options import SparkOptions


DEFAULT_WAREHOUSE = "./warehouse"
DEFAULT_MASTER = "local[2]"


def write_port(path: str, port: int) -> None:
    """Write the port to a file, atomically: a reader finds all digits or no file."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(f"{port}\n")
        part.replace(target)
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


def is_local(warehouse: str) -> bool:
    """Whether the warehouse is a directory on this machine."""
    return "://" not in warehouse or warehouse.startswith("file:")


def check_warehouse(catalog: Mapping[str, str]) -> None:
    """Raise an error if a local warehouse's directory, or a remote one's bucket, does not exist.

    `catalog` has the catalog's options. Within 10 seconds.
    """
    from streamhouse.paimon.storage.files import local_path

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
    from streamhouse.runtime.spark.options import SparkOptions

    settings = spark_settings(conf)
    for key in settings:
        if not key.startswith("spark."):
            raise OptionError(
                f"option '--conf': '{key}' is not a setting of Spark, which start with 'spark.'"
            )
    return SparkOptions(master, settings, verbose)
