"""Where Spark runs, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_MASTER = "local[2]"


@dataclass(frozen=True)
class SparkOptions:
    """Spark's master; `settings` of Spark, which override the defaults; `verbose`: print its log.

    A master that does not begin with `local` is a cluster: tasks then run on other hosts.
    """

    master: str = DEFAULT_MASTER
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    verbose: bool = False

    @property
    def is_local(self) -> bool:
        """Whether tasks run in the driver's own JVM."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")
