"""Candidates for the store of rows that views keep: how fast each finds, adds and opens rows.

Each holds `--rows` rows (an 8-byte key, an INT and a short text), and runs in a process of its own:

build_s    all rows are stored.
find_1k    1,000 random keys are looked up; find_100k: 100,000; the median of `--runs` times.
put_1k     1,000 rows get other values in one durable step; the median of `--runs` times.
restart    a new process opens the store and looks 1,000 keys up, without its start and imports.
private_mb the memory that the lookups of that process take (without mapped files).
disk_mb    the size of the files.

`segments` are those of `streamhouse.state`: Arrow files sorted by a hash column, mapped into memory
and verified, with one more segment and a manifest for each put. `duckdb` is a DuckDB file with a
table sorted by the same hash (zone maps), `rocksdb` needs the package `rocksdict`, `lance` the
package `pylance`; a candidate whose package is not installed is left out. Decision 285 has figures.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import Segment, written
from streamhouse.state.store import StateStore

CHUNK = 1 << 19
_TABLE = {"snapshot": 0, "time": 0, "wrote": 1}


def _hashes(keys: Any) -> Any:
    """A mixing hash of 64-bit keys."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


def _rows(keys: Any, version: int = 0) -> pa.Table:
    names = pa.array([f"name {number}" for number in range(1000)]).take(pa.array(keys % 1000))
    amount = pa.array((keys % 97 + version).astype(np.int32))
    return pa.table({"key": pa.array(keys), "amount": amount, "name": names})


class Segments:
    def __init__(self, folder: Path) -> None:
        self._store = StateStore(folder)
        newest = self._store.newest
        self._files = () if newest is None else newest.arrangements["rows"]

    def _write(self, rows: pa.Table) -> None:
        hashes = _hashes(rows.column("key").to_numpy())
        table = Segment.of(rows, hashes).table
        file = written(self._store.folder, table.schema, table.to_batches(CHUNK))
        self._files = (*self._files, file)
        self._store.save(Manifest(len(self._files), {}, _TABLE, {"rows": self._files}))

    def build(self, count: int) -> None:
        self._write(_rows(np.arange(count)))

    def put(self, keys: Any, version: int) -> None:
        self._write(_rows(keys, version))

    def find(self, keys: Any) -> int:
        hashes = np.sort(_hashes(keys))
        parts = (part for file in self._files for part in self._store.segment(file).parts(hashes))
        return sum(batch.num_rows for part in parts for batch in part.found())


class DuckDb:
    def __init__(self, folder: Path) -> None:
        duckdb = importlib.import_module("duckdb")
        self._db = duckdb.connect(str(folder / "rows.db"), config={"threads": 1})

    def build(self, count: int) -> None:
        rows = _rows(np.arange(count))
        rows = rows.append_column("h", pa.array(_hashes(rows.column("key").to_numpy())))
        self._db.register("rows", rows)
        self._db.sql("CREATE TABLE kept AS SELECT * FROM rows ORDER BY h")
        self._db.sql("CHECKPOINT")

    def put(self, keys: Any, version: int) -> None:
        rows = _rows(keys, version).append_column("h", pa.array(_hashes(keys)))
        self._db.register("rows", rows)
        self._db.sql("BEGIN")
        self._db.sql("DELETE FROM kept WHERE h IN (SELECT h FROM rows)")
        self._db.sql("INSERT INTO kept SELECT * FROM rows")
        self._db.sql("COMMIT")

    def find(self, keys: Any) -> int:
        self._db.register("asked", pa.table({"h": pa.array(_hashes(keys))}))
        sql = "SELECT kept.* FROM kept SEMI JOIN asked USING (h)"
        return int(self._db.sql(sql).to_arrow_table().num_rows)


class RocksDb:
    def __init__(self, folder: Path) -> None:
        rocks = importlib.import_module("rocksdict")
        self._batch = rocks.WriteBatch
        self._db = rocks.Rdict(str(folder), rocks.Options(raw_mode=True))

    def _write(self, rows: pa.Table) -> None:
        amounts, names = rows.column("amount").to_pylist(), rows.column("name").to_pylist()
        keys = rows.column("key").to_numpy().astype(">u8")
        batch = self._batch(raw_mode=True)
        for key, amount, name in zip(keys, amounts, names, strict=True):
            batch.put(key.tobytes(), b"%d,%s" % (amount, name.encode()))
        self._db.write(batch)

    def build(self, count: int) -> None:
        for first in range(0, count, CHUNK):
            self._write(_rows(np.arange(first, min(first + CHUNK, count))))
        self._db.flush()

    def put(self, keys: Any, version: int) -> None:
        self._write(_rows(keys, version))
        self._db.flush_wal(True)

    def find(self, keys: Any) -> int:
        raw = [key.tobytes() for key in keys.astype(">u8")]
        return sum(value is not None for value in self._db[raw])


class Lance:
    def __init__(self, folder: Path) -> None:
        self._lance, self._path = importlib.import_module("lance"), str(folder / "rows.lance")
        if Path(self._path).exists():
            self._data = self._lance.dataset(self._path)

    def build(self, count: int) -> None:
        self._data = self._lance.write_dataset(_rows(np.arange(count)), self._path)
        self._data.create_scalar_index("key", "BTREE")

    def put(self, keys: Any, version: int) -> None:
        merged = self._data.merge_insert("key").when_matched_update_all()
        merged.when_not_matched_insert_all().execute(_rows(keys, version))

    def find(self, keys: Any) -> int:
        listed = ", ".join(map(str, keys.tolist()))
        return int(self._data.to_table(filter=f"key IN ({listed})").num_rows)


STORES: dict[str, Callable[[Path], Any]] = {
    "segments": Segments, "duckdb": DuckDb, "rocksdb": RocksDb, "lance": Lance,
}  # fmt: skip


def _private_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def _seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _first(name: str, folder: str, given: argparse.Namespace, results: Any) -> None:
    store, random = STORES[name](Path(folder)), np.random.default_rng(1)
    figures = {"build_s": round(_seconds(lambda: store.build(given.rows)), 2)}

    def keys(count: int) -> Any:
        return random.choice(given.rows, count, replace=False)

    def finding(count: int) -> float:
        asked = keys(count)
        return _seconds(lambda: store.find(asked))

    def putting(version: int) -> float:
        changed = keys(1000)
        return _seconds(lambda: store.put(changed, version))

    for label, count in (("find_1k", 1000), ("find_100k", 100_000)):
        times = [finding(count) for _ in range(given.runs)]
        figures[f"{label}_ms"] = round(statistics.median(times) * 1000, 2)
    times = [putting(number) for number in range(given.runs)]
    figures["put_1k_ms"] = round(statistics.median(times) * 1000, 2)
    results.put(figures)


def _second(name: str, folder: str, given: argparse.Namespace, results: Any) -> None:
    asked = np.random.default_rng(2).choice(given.rows, 1000, replace=False)
    packages = {"duckdb": "duckdb", "rocksdb": "rocksdict", "lance": "lance"}
    importlib.import_module(packages.get(name, "numpy"))
    before = _private_mb()
    seconds = _seconds(lambda: STORES[name](Path(folder)).find(asked))
    mb = round(_private_mb() - before, 1)
    results.put({"restart_ms": round(seconds * 1000, 2), "private_mb": mb})


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of one candidate."""
    context = multiprocessing.get_context("spawn")
    line: dict[str, Any] = {"name": name}
    with tempfile.TemporaryDirectory(prefix="streamhouse-store-") as folder:
        for part in (_first, _second):
            results = context.Queue()
            process = context.Process(target=part, args=(name, folder, given, results))
            process.start()
            line |= results.get(timeout=600)
            process.join()
        files = (os.path.getsize(path) for path in Path(folder).rglob("*") if path.is_file())
        line["disk_mb"] = round(sum(files) / 1e6, 1)
    return line


def main() -> None:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stores", nargs="+", default=list(STORES), choices=list(STORES))
    given = parser.parse_args()
    for name in given.stores:
        package = {"rocksdb": "rocksdict"}.get(name, name)
        if name == "segments" or importlib.util.find_spec(package) is not None:
            print(json.dumps(measured(name, given)), flush=True)


if __name__ == "__main__":
    main()
