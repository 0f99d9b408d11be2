"""One case of the differential test, generated from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.integration.differential.layout import Layout, drawn

FEEDS = (
    "values",
    "select",
    "merge",
    "stream",
    "keyed-stream",
    "stopped",
    "lives",
    "java",
    "java-write-only",
)
"""How a source table is filled: INSERT VALUES, INSERT SELECT, MERGE with UPDATE and DELETE, a query
of the same pipeline that follows an append table or one with a primary key, a query of another
pipeline that has stopped or still runs, Paimon's Java core with and without its compaction."""
RETRACTING = ("merge", "keyed-stream", "java", "java-write-only")
"""How tables are filled that may take rows back."""
STREAMED = ("stream", "keyed-stream", "stopped", "lives")
READERS = (
    "copy",
    "sums",
    "distinct",
    "newest",
    "lookup-full",
    "lookup-partial",
    "lookup-bucket",
    "dimension-full",
    "dimension-partial",
    "dimension-bucket",
    "union",
    "union-sums",
    "two-hops",
)
"""What reads it. `lookup-…` joins the source's rows with a dimension; `dimension-…` joins the rows
of an append table with the source as dimension."""
FILTERED = ("filtered", "filtered-removing")
"""Readers of a part of the rows, one of which a third of the cases have beside three others."""
RETRY = "lookup-retry"
"""A lookup whose rows may wait, which a sixth of the cases have, too."""
BETWEENS = ("nothing", "compact", "compact-full", "add-column", "expire")
"""What happens to the source between two rounds."""
MODES = ("stopped", "live", "killed")
"""Readers run after the source was filled; they run while it is filled; a SIGKILL ends them."""


@dataclass(frozen=True)
class Case:
    """A source table, how it is filled, and what reads it, over some rounds of changes.

    `other` is the second table of a UNION ALL, `dimension` is joined, `middle` is the table
    between two hops.
    """

    seed: int
    source: Layout
    feed: str
    readers: tuple[str, ...]
    betweens: tuple[str, ...]
    mode: str = "stopped"
    other: Layout = Layout()
    dimension: Layout = Layout()
    middle: Layout = Layout()

    @property
    def rounds(self) -> int:
        return len(self.betweens) + 1

    @property
    def database(self) -> str:
        return f"c{self.seed}"

    @property
    def concurrent(self) -> bool:
        """Whether rows are written while readers read."""
        return self.mode == "live" or self.feed in ("stream", "keyed-stream", "lives")

    def named(self) -> Iterator[tuple[str, str]]:
        """Each dimension of the test with this case's value."""
        yield from self.source.named()
        yield "feed", self.feed
        yield "mode", self.mode
        for one in self.readers:
            yield "reader", one
        for one in self.betweens:
            yield "between", one

    def __str__(self) -> str:
        source = " ".join(f"{name}={value}" for name, value in self.source.named())
        text = (
            f"seed {self.seed}: {source} feed={self.feed} mode={self.mode} "
            f"readers={','.join(self.readers)} between={','.join(self.betweens)}"
        )
        used = {"union": self.other, "two-hops": self.middle, "lookup": self.dimension}
        for reader, layout in used.items():
            if any(one.startswith(reader) for one in self.readers):
                values = " ".join(f"{name}={value}" for name, value in layout.named())
                text += f"\n  {reader}: {values}"
        return text


def case_of(seed: int, **given: Any) -> Case:
    """The case of a seed; `given` stands over what is drawn."""
    random = Random(f"case {seed}")
    feed = random.choice(FEEDS)
    source = _filled(drawn(random, odd=0.05), feed)
    other = _filled(drawn(random, number=source.number), feed)
    if feed == "keyed-stream" and not (source.keyed and other.keyed):
        # A table without a primary key takes no updates.
        feed = "stream"
    if feed in RETRACTING and source.keyed and other.keyed:
        # Where only one of them has `p` in its key, it may be null in the other, as a merge of
        # what is taken back makes it; the target of both has it in its key.
        if "key" in (source.partition, other.partition) and source.partition != other.partition:
            other = replace(other, partition=source.partition)
    readers = tuple(random.sample(READERS, 3))
    # Drawn apart, so that seeds are the cases that they were without it.
    more = Random(f"filtered {seed}")
    if more.random() < 1 / 3:
        readers = (*readers, more.choice(FILTERED))
    if Random(f"retry {seed}").random() < 1 / 6:
        readers = (*readers, RETRY)
    made = Case(
        seed=seed,
        source=source,
        feed=feed,
        readers=readers,
        betweens=tuple(random.choice(BETWEENS) for _ in range(random.choice((1, 1, 2)))),
        mode=random.choices(MODES, (6, 2, 2))[0],
        other=other,
        dimension=drawn(random, engine="deduplicate", waits="", partition="none"),
        middle=_middle(random, source, feed),
    )
    return replace(made, **given)


def _filled(layout: Layout, feed: str) -> Layout:
    """A layout that can be filled so, and whose rows are then known.

    Flink finds the bucket of a new key, not the Java core. Sums are not taken back where keys move
    between partitions. Where the Java core writes, it depends on what else is in the commit whether
    `last_non_null_value` keeps a value that is taken back; beside sums it depends on the other
    columns (`sql.streaming.retraction`).
    """
    signed = feed in RETRACTING and "sum" in layout.merged.values()
    unclear = feed.startswith("java") or signed
    if layout.engine == "aggregation" and unclear and layout.removals != "remove":
        replaced = {"last_non_null_value": "last_value"}
        functions = tuple((name, replaced.get(how, how)) for name, how in layout.functions)
        layout = replace(layout, functions=functions)
    if feed == "keyed-stream" and layout.engine in ("aggregation", "group-sums"):
        if layout.partition == "across":
            layout = replace(layout, partition="none")
    if feed.startswith("java") and layout.keyed and layout.buckets == "-1":
        return replace(layout, buckets="4", partition="none")
    return layout


def _middle(random: Random, source: Layout, feed: str) -> Layout:
    fixed: dict[str, Any] = {
        "engine": "deduplicate",
        "waits": "",
        "removals": "",
        "number": source.number,
    }
    if source.partition == "key":
        fixed["partition"] = "key"
    made = drawn(random, **fixed)
    removes = source.keyed and source.partition != "across" and source.removals != "ignore"
    if made.partition == "across" and removes:
        # A table whose keys cross partitions takes no removals.
        return replace(made, partition="none")
    if feed in RETRACTING and "p" in source.merged:
        # A merge of what is taken back makes it null, and so it is no key.
        return replace(made, partition="none")
    return made
