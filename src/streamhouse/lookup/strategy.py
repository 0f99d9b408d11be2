"""Which strategy a lookup join takes: what a hint says, what an option says, else a rule."""

from __future__ import annotations

from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import Dimension, DimensionSpec
from streamhouse.lookup.full import FullDimension

FULL, PARTIAL, BUCKET = "full", "partial", "bucket"


@dataclass(frozen=True)
class Choice:
    """A strategy (`full`, `partial`, `bucket`), and in words why it is taken."""

    strategy: str
    reason: str

    def __str__(self) -> str:
        return f"{_WORDS[self.strategy]} ({self.reason})"


_WORDS = {
    FULL: "full cache",
    PARTIAL: "partial by primary key",
    BUCKET: "bucket shuffle",
}


def choose(spec: DimensionSpec) -> Choice:
    """The strategy of a lookup; driver, when its query starts.

    Raises `OptionError` if a hint or option asks for one that the table or the join does not
    allow; the message says what to change.
    """
    wanted = spec.lookup.strategy
    if wanted in (PARTIAL, BUCKET):
        raise OptionError(
            f"hint LOOKUP: strategy '{wanted}' does not go with table {spec.identifier}; leave it "
            "out, or take 'full'"
        )
    if wanted == FULL:
        return Choice(FULL, "the hint says so")
    return Choice(FULL, "nothing says otherwise")


def open_dimension(spec: DimensionSpec, choice: Choice) -> Dimension:
    """The dimension of one process by the strategy that was chosen; executors."""
    return FullDimension(spec)
