"""Random histories of a table with branches and tags: whatever still exists stays readable."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.procedures.conftest import Lake

from streamhouse import procedures
from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.paimon.java.unfinished_compactions import marker_path, remove_leftovers
from streamhouse.paimon.maintenance import expiry
from streamhouse.paimon.read.time_travel import table_as_of
from streamhouse.paimon.storage.snapshots import from_json
from streamhouse.sql.plan import AsOf

KEYS = 12
LAYOUTS: tuple[dict[str, str], ...] = (
    {"bucket": "1"},
    {"bucket": "2", "changelog_producer": "input"},
    {"bucket": "1", "deletion_vectors__enabled": "true"},
    {"bucket": "1", "changelog_producer": "lookup", "changelog__num_retained__min": "5",
     "changelog__num_retained__max": "8", "changelog__time_retained": "1 ms"},
)  # fmt: skip
WEIGHTS = {"write": 4, "tag": 4, "branch": 3, "squeeze": 5, "delete_tag": 4}
"""How often the random steps are taken; 1 for others."""
Rows = tuple[tuple[int, int], ...]
References = dict[tuple[str, str, str], Rows]
"""The rows of each snapshot and tag, by branch, `snapshot` or `tag`, and id or name."""


class History:
    """One table, the rows that each of its snapshots and tags has, and random steps."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.rng = lake, random.Random(seed)
        options = {
            "snapshot__num_retained__min": "1", "snapshot__num_retained__max": "2",
            "snapshot__time_retained": "1 ms", **LAYOUTS[seed % len(LAYOUTS)],
        }  # fmt: skip
        self.name = lake.table({"id": "INT", "n": "INT"}, ("id",), **options)
        self.root = Path(lake.warehouse.table(self.name).location)
        self.rows: dict[str, Rows] = {}
        """The rows of each snapshot that was ever seen, by the text of its file."""
        self.made = 0
        self.write()

    def branch_name(self, branch: str) -> str:
        return self.name if branch == "main" else f"{self.name}$branch_{branch}"

    def branches(self) -> list[str]:
        return ["main", *self.lake.warehouse.table(self.name).branches()]

    def folder(self, branch: str) -> Path:
        return self.root if branch == "main" else self.root / "branch" / f"branch-{branch}"

    def read(self, branch: str, version: AsOf | None = None) -> Rows:
        table = self.lake.warehouse.table(self.branch_name(branch))
        found = table if version is None else table_as_of(table, version)
        rows = [row for batch in found.read() for row in batch.to_pylist()]
        return tuple(sorted((row["id"], row["n"]) for row in rows))

    def references(self) -> Iterator[tuple[str, AsOf, str]]:
        """The branch, the version, and the snapshot's text of each snapshot and tag."""
        for branch in self.branches():
            for path in (self.folder(branch) / "snapshot").glob("snapshot-*"):
                number = path.name.removeprefix("snapshot-")
                yield branch, AsOf(snapshot=int(number)), path.read_text()
            for path in (self.folder(branch) / "tag").glob("tag-*"):
                name = path.name.removeprefix("tag-")
                yield branch, AsOf(tag=name), path.read_text()

    def learn(self) -> None:
        """Note the rows of new snapshots, as they are before anything can have been deleted."""
        for branch, version, text in self.references():
            key = str(from_json(text))
            if key not in self.rows:
                self.rows[key] = self.read(branch, version)

    def check(self, step: str) -> None:
        for branch, version, text in self.references():
            try:
                rows = self.read(branch, version)
            except StreamhouseError as error:
                raise AssertionError(f"after {step}: {branch} {version}: {error}") from error
            assert rows == self.rows[str(from_json(text))], f"after {step}: {branch} {version}"

    def any_branch(self) -> str:
        return self.rng.choice(self.branches())

    def new_name(self) -> str:
        self.made += 1
        return f"x{self.made}"

    def write(self, branch: str = "main") -> None:
        ids = self.rng.sample(range(KEYS), 4)
        rows = {"id": ids, "n": [self.rng.randrange(1000) for _ in ids]}
        self.lake.write(self.branch_name(branch), rows, user=f"u-{branch}")

    def step_write(self) -> None:
        self.write(self.any_branch())

    def step_compact(self) -> None:
        self.lake.context.sidecar.compact(self.branch_name(self.any_branch()), full=True)

    def step_killed_compaction(self) -> None:
        """A compaction whose marker stays, as after a crash, and the removal of its leftovers."""
        branch = self.any_branch()
        before = set(self.root.rglob("compact-*"))
        self.lake.context.sidecar.compact(self.branch_name(branch), full=True)
        new = {path.name.split("-")[1] for path in set(self.root.rglob("compact-*")) - before}
        for compaction in new:
            Path(marker_path(str(self.folder(branch)), compaction)).write_text("{}")
        if self.rng.random() < 0.5:
            self.step_rollback()
        table = self.lake.warehouse.table(self.branch_name(branch))
        remove_leftovers(self.lake.context.sidecar, table, 0)

    def step_tag(self) -> None:
        branch = self.any_branch()
        name = self.branch_name(branch)
        if self.lake.latest(name):
            procedures.create_tag(self.lake.context, name, self.new_name())

    def tags(self, branch: str) -> list[str]:
        return self.lake.warehouse.table(self.branch_name(branch)).tags()

    def step_branch(self) -> None:
        tags = self.tags("main")
        if len(self.branches()) < 4:
            tag = self.rng.choice(tags) if tags else None
            procedures.create_branch(self.lake.context, self.name, self.new_name(), tag)

    def step_delete_tag(self) -> None:
        branch = self.any_branch()
        if tags := self.tags(branch):
            name = self.branch_name(branch)
            procedures.delete_tag(self.lake.context, name, self.rng.choice(tags))

    def step_expire_tags(self) -> None:
        branch = self.any_branch()
        others = {other: self.tags(other) for other in self.branches() if other != branch}
        if self.rng.random() < 0.5:
            name = self.branch_name(branch)
            procedures.expire_tags(self.lake.context, name, "2999-01-01 00:00:00")
        assert {other: self.tags(other) for other in others} == others

    def step_expire(self) -> None:
        name = self.branch_name(self.any_branch())
        procedures.expire_snapshots(self.lake.context, name, 1)

    def step_squeeze(self) -> None:
        """Write, compact and expire, so that no older snapshot of the branch is left."""
        branch = self.any_branch()
        name = self.branch_name(branch)
        self.write(branch)
        self.learn()
        self.lake.context.sidecar.compact(name, full=True)
        self.learn()
        procedures.expire_snapshots(self.lake.context, name, 1)

    def step_maintain(self) -> None:
        time.sleep(0.002)
        table = self.lake.warehouse.table(self.branch_name(self.any_branch()))
        expiry.expire(self.lake.context.sidecar, table)

    def step_rollback(self) -> None:
        branch = self.any_branch()
        table = self.lake.warehouse.table(self.branch_name(branch))
        numbers = [snapshot.id for snapshot in table.snapshots.newest_first()]
        targets: list[str] = [*map(str, numbers), *self.tags(branch)]
        if targets:
            target = self.rng.choice(targets)
            procedures.rollback_to(self.lake.context, self.branch_name(branch), target)

    def step_fast_forward(self) -> None:
        branch = self.any_branch()
        if branch == "main" or not self.lake.latest(self.branch_name(branch)):
            return
        before, rows = self.tags("main"), self.read("main")
        force = self.rng.random() < 0.5
        try:
            procedures.fast_forward(self.lake.context, self.name, branch, force)
        except StreamhouseError:
            assert not force and self.read("main") == rows
        else:
            assert self.read("main") == self.read(branch)
            assert force or set(before) <= set(self.tags("main"))

    def step_delete_branch(self) -> None:
        branch = self.any_branch()
        if branch != "main" and self.rng.random() < 0.5:
            procedures.delete_branch(self.lake.context, self.name, branch)

    def step_remove_orphans(self) -> None:
        old = time.time() - 7200
        for path in self.root.rglob("*"):
            if path.is_file():
                os.utime(path, (old, old))
        before_ms = str(int((time.time() - 3700) * 1000))
        context, name = self.lake.context, self.branch_name(self.any_branch())
        dry = procedures.remove_orphan_files(context, name, before_ms, dry_run=True)
        done = procedures.remove_orphan_files(context, name, before_ms)
        assert dry["file"].to_pylist() == done["file"].to_pylist()
        assert files_of(self) <= referenced(self), "orphans stayed"

    def run(self, steps: int) -> None:
        names = [name for name in dir(self) if name.startswith("step_")]
        weights = [WEIGHTS.get(name.removeprefix("step_"), 1) for name in names]
        for _ in range(steps):
            (name,) = self.rng.choices(names, weights)
            step: Callable[[], None] = getattr(self, name)
            self.learn()
            step()
            self.learn_new_then_check(name)
        self.step_remove_orphans()
        self.check("the last removal of orphans")

    def learn_new_then_check(self, step: str) -> None:
        self.learn()
        self.check(step)


def files_of(history: History) -> set[str]:
    """The names of the files in the folders of data and of manifests."""
    folders = [*history.root.glob("bucket-*"), *(history.root / name for name in FOLDERS)]
    return {path.name for folder in folders if folder.exists() for path in folder.iterdir()}


FOLDERS = ("manifest", "index", "statistics")


def referenced(history: History) -> set[str]:
    """The names of the files that the snapshots, tags and changelogs of all branches name."""

    def of_branch(jvm: Any, java: Any) -> set[str]:
        store = java.store()
        lists, manifests = (
            store.manifestListFactory().create(),
            store.manifestFileFactory().create(),
        )
        index = store.newIndexFileHandler()
        snapshots = [
            *java.snapshotManager().safelyGetAllSnapshots(),
            *java.tagManager().tags().keySet(),
            *java.changelogManager().safelyGetAllChangelogs(),
        ]
        names: set[str] = set()
        for snapshot in snapshots:
            found = [
                snapshot.baseManifestList(),
                snapshot.deltaManifestList(),
                snapshot.changelogManifestList(),
            ]
            for manifest_list in filter(None, found):
                names.add(manifest_list)
                if not (history.root / "manifest" / manifest_list).exists():
                    continue
                for manifest in lists.read(manifest_list):
                    names.add(manifest.fileName())
                    for entry in manifests.read(manifest.fileName()):
                        names.add(entry.file().fileName())
            if snapshot.indexManifest() is not None:
                names.add(snapshot.indexManifest())
                for entry in index.readManifest(snapshot.indexManifest()):
                    names.add(entry.indexFile().fileName())
        return names

    return set().union(
        *(history.lake.context.java(history.branch_name(branch), of_branch)
          for branch in history.branches())
    )  # fmt: skip


@pytest.mark.parametrize("seed", (4, 9, 6, 19))
def test_what_a_branch_or_tag_needs_stays(lake: Lake, seed: int) -> None:
    History(lake, seed).run(25)


@pytest.mark.parametrize("expires", [False, True], ids=["deleted", "expired"])
def test_a_branch_outlives_the_tag_that_it_was_made_from(lake: Lake, expires: bool) -> None:
    history = History(lake, 0)
    context, name = lake.context, history.name
    procedures.create_tag(context, name, "base", time_retained="1 ms" if expires else None)
    procedures.create_branch(context, name, "b", "base")
    history.learn()
    history.write()
    context.sidecar.compact(name, full=True)
    procedures.expire_snapshots(context, name, 1)
    history.learn()
    files = len(list(history.root.glob("bucket-0/*")))
    if expires:
        expiry.expire(context.sidecar, lake.warehouse.table(name))
    else:
        procedures.delete_tag(context, name, "base")
    assert history.tags("main") == []
    history.check("the tag's end")
    procedures.delete_branch(context, name, "b")
    context.sidecar.compact_manifests(name)
    procedures.expire_snapshots(context, name, 1)
    history.step_remove_orphans()
    assert len(list(history.root.glob("bucket-0/*"))) < files


def test_a_tag_of_a_branch_outlives_its_snapshot(lake: Lake) -> None:
    history = History(lake, 0)
    context, branch = lake.context, history.branch_name("b")
    procedures.create_branch(context, history.name, "b")
    procedures.create_tag(context, history.name, "mine")
    for number in range(3):
        history.write("b")
        if number == 0:
            procedures.create_tag(context, branch, "first")
            history.learn()
    context.sidecar.compact(branch, full=True)
    procedures.expire_snapshots(context, branch, 1)
    history.learn()
    history.check("the expiry of the branch")
    gone = procedures.expire_tags(context, branch, "2999-01-01 00:00:00").to_pylist()
    assert gone == [{"expired_tag": "first"}]
    assert history.tags("main") == ["mine"]


def test_a_fast_forward_keeps_tags_and_refuses_to_lose_commits(lake: Lake) -> None:
    history = History(lake, 0)
    context, name = lake.context, history.name
    procedures.create_tag(context, name, "a")
    procedures.create_tag(context, name, "b")
    procedures.create_branch(context, name, "side", "a")
    for _ in range(2):
        history.write("side")
    procedures.fast_forward(context, name, "side")
    assert history.tags("main") == ["a", "b"]
    assert history.read("main") == history.read("side")
    # A commit whose number is below the first snapshot that the branch has left.
    procedures.create_branch(context, name, "late", "b")
    for _ in range(5):
        history.write("late")
    procedures.expire_snapshots(context, history.branch_name("late"), 1)
    rows = history.read("main")
    with pytest.raises(StreamhouseError, match="they would be lost"):
        procedures.fast_forward(context, name, "late")
    assert history.read("main") == rows


def test_purging_a_branch_is_refused(lake: Lake) -> None:
    history = History(lake, 0)
    procedures.create_branch(lake.context, history.name, "b")
    with pytest.raises(OptionError, match="is a branch"):
        procedures.purge_files(lake.context, history.branch_name("b"))


def test_changelogs_expire_only_if_there_are_more_than_the_least_number(lake: Lake) -> None:
    history = History(lake, 3)
    for _ in range(3):
        history.write()
    context = lake.context
    procedures.expire_snapshots(context, history.name, 1)
    done = procedures.expire_changelogs(context, history.name).to_pylist()
    assert done == [{"expired_changelogs": 0}]


@pytest.mark.soak
@pytest.mark.parametrize(
    "seed", range(100, int(os.environ.get("STREAMHOUSE_DIFFERENTIAL_CASES", "40")) + 100)
)
def test_what_a_branch_or_tag_needs_stays_in_many_histories(lake: Lake, seed: int) -> None:
    History(lake, seed).run(60)
