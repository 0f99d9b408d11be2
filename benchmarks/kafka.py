"""The Kafka connectors against bare loops over confluent-kafka, in the same run, with a broker.

read   `--messages` small JSON messages (four fields, 80 bytes) of a topic with two partitions.
       Ours: a script copies them into an append table of the warehouse, in two tasks, exactly
       once. The limit: one consumer that reads both partitions and parses each message with orjson.
write  `--rows` rows of a table. Ours: a script copies them into a topic, with `exactly-once`. The
       limit: one producer that writes the same rows, each encoded with orjson.

Both of ours are clocked from when the Spark session is up and the script is given to the runtime
until the query has ended: planning, the start of Python workers and commits are in it. Python's
libraries are imported before the clock starts, in the limit's turns, too. `ratio` is the limit's
time over ours. Each turn is a process of its own, limit and ours in turn; times are
medians. The clients of limit and ours have the same settings. The copies are compared with what was
written: counts and sums.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Producer, TopicPartition

from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.run_output import RunOutput

GOALS = {"read": 1.0, "write": 0.5}
UNITS = {
    "read": "times as fast as a consumer loop with orjson",
    "write": "times as fast as a producer loop with orjson",
}
RUN_SECONDS = 900
PARTITIONS = 2
CONSUMER = {
    "group.id": "bench", "enable.auto.commit": "false", "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": "5", "queued.min.messages": "200000",
    "queued.max.messages.kbytes": "131072", "max.partition.fetch.bytes": "4194304",
}  # fmt: skip
PRODUCER = {
    "linger.ms": "20", "batch.size": "1000000", "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "524288", "enable.idempotence": "true",
}  # fmt: skip
COLUMNS = "id BIGINT, customer INT, amount DECIMAL(10, 2), created TIMESTAMP(3)"
READ = """
CREATE TEMPORARY TABLE incoming ({columns}) WITH (
  'connector' = 'kafka', 'topic' = 'incoming', 'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
);
CREATE TABLE {name} ({columns}) WITH ('bucket' = '-1');
SET 'parallelism.default' = '2';
INSERT INTO {name} SELECT * FROM incoming;
"""
WRITE = """
CREATE TEMPORARY TABLE outgoing ({columns}) WITH (
  'connector' = 'kafka', 'topic' = '{name}', 'properties.bootstrap.servers' = '{servers}',
  'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '{name}'
);
SET 'parallelism.default' = '2';
INSERT INTO outgoing SELECT * FROM numbers;
"""


class Quiet(RunOutput):
    """A printer for scripts whose output nobody reads."""

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr)


def message(number: int) -> bytes:
    seconds = number // 1000
    at = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return (
        f'{{"id":{number},"customer":{number * 7919 % 100_000},'
        f'"amount":{number % 1000}.{number % 100:02d},'
        f'"created":"2026-01-01 {at}.{number % 1000:03d}"}}'
    ).encode()


def send(servers: str, topic: str, messages: Iterator[bytes]) -> None:
    producer = Producer({**PRODUCER, "bootstrap.servers": servers})
    for number, value in enumerate(messages):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 10_000:
            producer.poll(0)
    if producer.flush(RUN_SECONDS):
        raise SystemExit("the broker has not taken all messages")


def script(warehouse: str, servers: str, kind: str, name: str) -> float:
    """Seconds of a script that reads or writes a topic; in a fresh process."""
    # Before the clock: 0.5 s.
    import pypaimon.catalog.catalog_factory  # noqa: F401
    import sqlglot.dialects.duckdb  # noqa: F401

    from streamhouse.runtime.script import ScriptOptions, ScriptRunner
    from streamhouse.runtime.spark.session import start_session
    from streamhouse.sql.statements.script import parse_script

    start_session("kafka")
    started = time.perf_counter()
    text = {"read": READ, "write": WRITE}[kind]
    text = text.format(columns=COLUMNS, servers=servers, name=name)
    options = ScriptOptions(name, {"warehouse": warehouse}, until_caught_up=True)
    ScriptRunner(options, Quiet()).run(parse_script(text))
    return time.perf_counter() - started


def consume(servers: str, count: int) -> float:
    """Seconds of a loop that reads and parses all messages."""
    started = time.perf_counter()
    reader = Consumer({**CONSUMER, "bootstrap.servers": servers})
    reader.assign([TopicPartition("incoming", number, 0) for number in range(PARTITIONS)])
    read = total = 0
    while read < count:
        for each in reader.consume(10_000, 1.0):
            if each.error() is not None:
                raise SystemExit(each.error().str())
            total += orjson.loads(each.value())["id"]
            read += 1
    seconds = time.perf_counter() - started
    reader.close()
    if total != count * (count - 1) // 2:
        raise SystemExit(f"the loop has read ids that add up to {total}")
    return seconds


def produce(servers: str, topic: str, count: int) -> float:
    """Seconds of a loop that encodes and writes all rows."""
    rows = [orjson.loads(message(number)) for number in range(count)]
    started = time.perf_counter()
    producer = Producer({**PRODUCER, "bootstrap.servers": servers})
    for number, row in enumerate(rows):
        while True:
            try:
                producer.produce(topic, orjson.dumps(row))
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 10_000:
            producer.poll(0)
    if producer.flush(RUN_SECONDS):
        raise SystemExit("the broker has not taken all messages")
    return time.perf_counter() - started


def one(kind: str, rest: Sequence[str]) -> float:
    if kind == "consume":
        return consume(rest[0], int(rest[1]))
    if kind == "produce":
        return produce(rest[0], rest[1], int(rest[2]))
    return script(rest[0], rest[1], kind, rest[2])


def in_fresh_process(*arguments: str) -> float:
    command = [sys.executable, __file__, "--one", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise SystemExit(f"a turn failed with exit code {done.returncode}")
    return float(done.stdout.splitlines()[-1])


def line(kind: str, rows: int, limits: list[float], ours: list[float]) -> dict[str, Any]:
    limit, own = statistics.median(limits), statistics.median(ours)
    return {
        "name": kind,
        "ratio": round(limit / own, 3),
        "goal": GOALS[kind],
        "unit": UNITS[kind],
        "rows": rows,
        "rows_per_s": round(rows / own),
        "limit_s": round(limit, 2),
        "ours_s": round(own, 2),
        "ratios": [round(a / b, 3) for a, b in zip(limits, ours, strict=True)],
        "load_1min": round(os.getloadavg()[0], 1),
    }


def read(broker: KafkaBroker, warehouse: str, given: argparse.Namespace) -> dict[str, Any]:
    broker.create_topic("incoming", PARTITIONS)
    send(broker.servers, "incoming", map(message, range(given.messages)))
    limits, ours = [], []
    for run in range(given.runs):
        limits.append(in_fresh_process("consume", broker.servers, str(given.messages)))
        name = f"copy_{run}"
        ours.append(in_fresh_process("read", warehouse, broker.servers, name))
        table = pa.Table.from_batches(list(Warehouse(warehouse).table(f"default.{name}").read()))
        found = (table.num_rows, pc.sum(table["id"]).as_py())
        if found != (given.messages, given.messages * (given.messages - 1) // 2):
            raise SystemExit(f"the copy is wrong: {found[0]} rows, ids add up to {found[1]}")
    return line("read", given.messages, limits, ours)


def write(broker: KafkaBroker, warehouse: str, given: argparse.Namespace) -> dict[str, Any]:
    import streamhouse

    numbers = f"CREATE TABLE numbers ({COLUMNS}) WITH ('bucket' = '-1')"
    streamhouse.execute(Warehouse(warehouse), numbers)
    generated = f"""
CREATE TEMPORARY TABLE generated ({COLUMNS}) WITH ('connector' = 'datagen',
  'number-of-rows' = '{given.rows}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0',
  'fields.id.end' = '{given.rows - 1}');
INSERT INTO numbers SELECT * FROM generated;
"""
    streamhouse.execute(Warehouse(warehouse), generated)
    limits, ours = [], []
    for run in range(given.runs):
        for topic in (f"loop-{run}", f"ours-{run}"):
            broker.create_topic(topic, PARTITIONS)
        limits.append(in_fresh_process("produce", broker.servers, f"loop-{run}", str(given.rows)))
        ours.append(in_fresh_process("write", warehouse, broker.servers, f"ours-{run}"))
        check_written(broker.servers, f"ours-{run}", given.rows)
    return line("write", given.rows, limits, ours)


def check_written(servers: str, topic: str, count: int) -> None:
    reader = Consumer(
        {**CONSUMER, "bootstrap.servers": servers, "isolation.level": "read_committed"}
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[int] = []
    while True:
        messages = reader.consume(10_000, 5.0)
        if not messages:
            break
        found += [orjson.loads(each.value())["id"] for each in messages]
    reader.close()
    if (len(found), sum(found)) != (count, count * (count - 1) // 2):
        raise SystemExit(f"the topic is wrong: {len(found)} records, ids add up to {sum(found)}")


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    kinds = {"read": read, "write": write}
    with (
        tempfile.TemporaryDirectory(prefix="streamhouse-kafka-") as folder,
        KafkaBroker(Path(folder) / "kafka", java_options=()) as broker,
    ):
        warehouse = f"{folder}/warehouse"
        Warehouse(warehouse).create_database("default")
        for kind in given.only:
            yield kinds[kind](broker, warehouse, given)


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--messages", type=int, default=5_000_000, help="that are read")
    parser.add_argument("--rows", type=int, default=1_000_000, help="that are written")
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--only", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(one(given.one[0], given.one[1:]))
        return 0
    for found in measure(given):
        if given.json:
            print(json.dumps(found), flush=True)
        else:
            rest = [f"{key} {value}" for key, value in found.items() if key not in _HEAD]
            print(f"{found['name']:8} {found['ratio']:6} {found['goal']:5}   {', '.join(rest)}")
    return 0


_HEAD = ("name", "ratio", "goal")

if __name__ == "__main__":
    sys.exit(main())
