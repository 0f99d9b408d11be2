"""The offset of a stream: how far each of its shards has been read.

`{"stream", "init", "at", "behind", "shards"}`: `stream` is the stream's identity. Shards without an
entry are read from `init` on (epoch ms; absent: from their oldest record). All that had arrived at
the time `at` was read (epoch ms), which is `behind` ms before the batch was planned. `shards` has
for each shard that was begun the sequence number of the last record read (`after`), and `done` once
a closed shard was read to its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from streamhouse.connectors.kinesis.stream import Shard, Start
from streamhouse.source import Offset


@dataclass(frozen=True)
class ShardOffset:
    """How far a shard was read: to the record `after` (None: no record yet), or to its end."""

    after: int | None = None
    done: bool = False

    def as_json(self) -> dict[str, object]:
        """The entry in the offset."""
        entry: dict[str, object] = {} if self.after is None else {"after": str(self.after)}
        return {**entry, "done": True} if self.done else entry


@dataclass(frozen=True)
class StreamOffset:
    """A stream's offset; see the module."""

    stream: str
    init_ms: int | None
    at_ms: int
    behind_ms: int = 0
    shards: Mapping[str, ShardOffset] = field(default_factory=dict)

    @classmethod
    def from_json(cls, offset: Offset) -> Self:
        """The offset as a source recorded it."""
        shards = {
            shard: ShardOffset(
                int(position["after"]) if "after" in position else None, "done" in position
            )
            for shard, position in offset["shards"].items()
        }
        return cls(offset["stream"], offset.get("init"), offset["at"], offset["behind"], shards)

    def as_json(self) -> Offset:
        """The form that is recorded; sequence numbers are texts, since they exceed 64 bits."""
        init = {} if self.init_ms is None else {"init": self.init_ms}
        shards = {shard: position.as_json() for shard, position in sorted(self.shards.items())}
        times = {"at": self.at_ms, "behind": self.behind_ms}
        return {"stream": self.stream, **init, **times, "shards": shards}

    def start(self, shard: str) -> Start:
        """Where to continue with a shard."""
        after = self.shards[shard].after if shard in self.shards else None
        return Start(time_ms=self.init_ms) if after is None else Start(after=after)

    def readable(self, listed: Mapping[str, Shard]) -> list[str]:
        """The shards to read next: not done, and all their parents are.

        A record goes to the shard that has its key's hash at the time. So a batch that has a shard
        has none of its parents, and the records of a key are in order.
        """

        def done(shard: str) -> bool:
            return shard in self.shards and self.shards[shard].done

        return [
            shard.id
            for shard in listed.values()
            if not done(shard.id)
            and all(done(parent) or parent not in listed for parent in shard.parents)
        ]

    def advanced(
        self,
        shards: Mapping[str, ShardOffset],
        at_ms: int,
        now_ms: int,
        listed: Mapping[str, Shard],
    ) -> Self:
        """The offset with these shards further on, without those whose records have expired."""
        merged = {**self.shards, **shards}
        kept = {
            shard: position
            for shard, position in merged.items()
            if shard in listed or not position.done
        }
        at_ms = max(self.at_ms, at_ms)
        return replace(self, at_ms=at_ms, behind_ms=max(0, now_ms - at_ms), shards=kept)
