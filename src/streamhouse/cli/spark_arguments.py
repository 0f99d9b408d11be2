"""Arguments of commands that run Spark: the master, and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.arguments import key_values
from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.runtime.spark.options import SparkOptions

DEFAULT_MASTER = "local[2]"

MasterArgument = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs tasks: local[2], or a cluster such as spark://host:7077 or yarn.",
    ),
]
ConfArgument = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=2g; can be repeated.",
    ),
]


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
