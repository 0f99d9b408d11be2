"""Prometheus metrics of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from streamhouse.serve.auth.scope import EVERYTHING, Scope

if TYPE_CHECKING:
    from streamhouse.serve.admission.fair_queue import Lane
    from streamhouse.serve.admission.response_memory import Outgoing
    from streamhouse.serve.streams.hub import ChannelStats

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one server; `streams` returns the statistics of its change streams."""

    def __init__(
        self,
        streams: Callable[[], Iterable[ChannelStats]],
        lanes: Iterable[Lane],
        outgoing: Outgoing,
    ) -> None:
        self._streams = streams
        self._registry = CollectorRegistry()
        self._gauge("answers", "Answers on their way to readers").set_function(
            lambda: outgoing.count
        )
        self._gauge("answer_bytes", "Bytes of answers on their way to readers").set_function(
            lambda: outgoing.held
        )
        self._gauge("answers_cut", "Readers that were cut off, so far").set_function(
            lambda: outgoing.cut
        )
        running = self._gauge("running", "What runs now, by kind", "kind")
        waiting = self._gauge("waiting", "What waits for its turn, by kind", "kind")
        for lane in lanes:
            kind = lane.name.replace(" ", "_")
            running.labels(kind).set_function(partial(getattr, lane, "running"))
            waiting.labels(kind).set_function(partial(getattr, lane, "waiting"))
        self.requests = Counter(
            "streamhouse_requests",
            "Requests that were answered, WebSockets when they end",
            ("route", "method", "code"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "streamhouse_request_seconds",
            "Time until an answer was sent, streams of changes left out",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.sent = Counter(
            "streamhouse_sent_bytes",
            "Bytes of bodies and messages that were sent",
            ("route",),
            registry=self._registry,
        )
        self.open = Gauge(
            "streamhouse_open_requests",
            "Requests and WebSockets that are being answered",
            registry=self._registry,
        )
        self.queries = Counter(
            "streamhouse_queries",
            "Queries of clients by how they ended",
            ("outcome",),
            registry=self._registry,
        )
        self.query_seconds = Histogram(
            "streamhouse_query_seconds",
            "Time of a query of a client, waiting for its turn included",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"streamhouse_{name}", text, labels, registry=self._registry)

    def text(self, scope: Scope = EVERYTHING) -> bytes:
        """All metrics in Prometheus text format; of streams those whose view the scope sees."""
        seen = [one for one in self._streams() if scope.sees(one.name)]
        return generate_latest(self._registry) + generate_latest(_Streams(seen))


class _Streams:
    """Prometheus collector over the current statistics of streams, labelled by view."""

    def __init__(self, streams: Iterable[ChannelStats]) -> None:
        self._streams = list(streams)

    def collect(self) -> Iterable[Metric]:
        gauges: dict[str, tuple[str, Callable[[ChannelStats], float | None]]] = {
            "subscribers": ("Readers of a followed view", lambda one: one.subscribers),
            "snapshot": ("Newest snapshot that was sent", lambda one: one.snapshot),
            "freshness_seconds": (
                "Age of the newest change when it was ready to be sent",
                lambda one: None if one.freshness_ms is None else one.freshness_ms / 1000,
            ),
        }
        counters: dict[str, tuple[str, Callable[[ChannelStats], float]]] = {
            "events": ("Events that were encoded, each once for all readers", lambda s: s.events),
            "rows": ("Changed rows that were encoded, each once", lambda one: one.rows),
            "encoded_bytes": ("Bytes of encoded events", lambda one: one.bytes),
            "overflows": (
                "Readers that were cut off because they were slow",
                lambda s: s.overflows,
            ),
            "state_rows": ("Rows that were encoded for first snapshots", lambda s: s.state_rows),
            "polls": ("Looks at a followed view", lambda one: one.polls),
            "poll_seconds": ("Time that the looks took", lambda one: one.poll_ms / 1000),
            "failures": ("Looks that failed, and were tried again", lambda one: one.failures),
        }
        yield GaugeMetricFamily(
            "streamhouse_followed_views", "Views that are followed", len(self._streams)
        )
        for name, (text, measured) in gauges.items():
            gauge = GaugeMetricFamily(f"streamhouse_stream_{name}", text, labels=["view"])
            for one in self._streams:
                value = measured(one)
                if value is not None:
                    gauge.add_metric([one.name], value)
            yield gauge
        for name, (text, counted) in counters.items():
            counter = CounterMetricFamily(f"streamhouse_stream_{name}", text, labels=["view"])
            for one in self._streams:
                counter.add_metric([one.name], counted(one))
            yield counter
