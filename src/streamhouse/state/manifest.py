"""Manifests: which segments are the kept rows after a batch, as of which snapshots; merges."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypeAlias

from streamhouse.state.segment import SegmentFile, StateError

FORMAT = 4

Segments: TypeAlias = tuple[SegmentFile, ...]
"""The files of one arrangement, the oldest first."""


@dataclass(frozen=True)
class Manifest:
    """The kept rows after a batch.

    `offset` is the end offset of the batch. Before it, `table` was the newest position in the
    view's table: `snapshot` (0: it was empty) and its `time`; `wrote`: the batch has changed it.
    `arrangements` are named by the fingerprints of what they keep, `labels` say it in words; empty
    if nothing was kept after the batch. `as_of` is the offset of these rows, if that is not the end
    offset of the batch.
    """

    batch: int
    offset: Mapping[str, Any]
    table: Mapping[str, Any]
    arrangements: Mapping[str, Segments]
    labels: Mapping[str, str] = field(default_factory=dict)
    as_of: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kept_at(self) -> Mapping[str, Any]:
        """The offset of the kept rows."""
        return self.as_of or self.offset

    @property
    def files(self) -> set[str]:
        """The names of its files."""
        return {file.name for files in self.arrangements.values() for file in files}

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.size for files in self.arrangements.values() for file in files)

    def to_json(self) -> str:
        """The text of the manifest's file: a checksum, and the manifest as JSON."""
        text = json.dumps({"format": FORMAT, **asdict(self)})
        return f"{zlib.crc32(text.encode())} {text}"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the text of a manifest's file; `StateError` for a damaged or a later one."""
        try:
            checksum, _, text = text.partition(" ")
            if int(checksum) != zlib.crc32(text.encode()):
                raise StateError("the manifest does not have its checksum")
            record = json.loads(text)
            if record.pop("format") != FORMAT:
                raise StateError("the manifest has another format")
            record["arrangements"] = {
                name: tuple(SegmentFile(**file) for file in files)
                for name, files in record["arrangements"].items()
            }
            return cls(**record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(f"the manifest is damaged: {error}") from error


@dataclass(frozen=True)
class Merge:
    """A segment `output` with the rows of others; `inputs` are their names, the oldest first.

    A batch merges few rows itself. Many rows are merged beside the batches: the merge leaves this
    record beside the segments, and the next batch uses its segment instead of its inputs.
    """

    inputs: tuple[str, ...]
    output: SegmentFile

    def applied(self, files: Segments) -> Segments:
        """The files with the inputs replaced by the output, if they have all inputs in a row."""
        names, count = [file.name for file in files], len(self.inputs)
        for first in range(len(names) - count + 1):
            if tuple(names[first : first + count]) == self.inputs:
                return (*files[:first], self.output, *files[first + count :])
        return files

    def to_json(self) -> str:
        """The text of the record."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the text of a record; `StateError` for a damaged one."""
        try:
            record = json.loads(text)
            return cls(tuple(record["inputs"]), SegmentFile(**record["output"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"the record of a merge is damaged: {error}") from error
