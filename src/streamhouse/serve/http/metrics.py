"""Prometheus metrics of a server."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from streamhouse.serve.admission.fair_queue import FairQueue
from streamhouse.serve.admission.response_memory import UnsentResponses
from streamhouse.serve.pipelines.listing import HELP
from streamhouse.serve.streams.view_poller import StreamStats
from streamhouse.serve.tokens import EVERYTHING, Scope

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one server; `streams` returns the statistics of its change streams."""

    def __init__(
        self,
        streams: Callable[[], Iterable[StreamStats]],
        queues: Iterable[FairQueue],
        unsent: UnsentResponses,
    ) -> None:
        self._streams = streams
        self._registry = CollectorRegistry()
        sizes = (
            ("answers", "Responses that are being sent", "count"),
            ("answer_bytes", "Total size of the responses that are being sent", "total_bytes"),
            (
                "answers_cut",
                "Clients that were disconnected because they read too slowly",
                "aborted",
            ),
        )
        for name, text, attribute in sizes:
            self._new(Gauge, name, text).set_function(partial(getattr, unsent, attribute))
        running = self._new(Gauge, "running", "Requests that are running, by kind", "kind")
        waiting = self._new(Gauge, "waiting", "Requests that wait for a slot, by kind", "kind")
        for queue in queues:
            kind = queue.name.replace(" ", "_")
            running.labels(kind).set_function(partial(getattr, queue, "running"))
            waiting.labels(kind).set_function(partial(getattr, queue, "waiting"))
        self.requests = self._new(
            Counter, "requests", "Completed requests; a WebSocket counts when it closes",
            "route", "method", "code",
        )  # fmt: skip
        self.seconds = self._new(
            Histogram, "request_seconds",
            "Duration of a request until its response is sent; excludes change streams", "route",
            buckets=_SECONDS,
        )  # fmt: skip
        self.sent = self._new(
            Counter, "sent_bytes", "Bytes sent in response bodies and WebSocket messages", "route"
        )
        self.open = self._new(Gauge, "open_requests", "Requests and WebSockets in progress")
        self.queries = self._new(Counter, "queries", "Queries of clients, by outcome", "outcome")
        self.query_seconds = self._new(
            Histogram, "query_seconds",
            "Duration of a query of a client, including the wait for a slot", buckets=_SECONDS,
        )  # fmt: skip

    def _new(self, kind: type[M], name: str, text: str, *labels: str, **more: Any) -> M:
        return kind(f"streamhouse_{name}", text, labels, registry=self._registry, **more)

    def text(self, scope: Scope = EVERYTHING, pipelines: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """All metrics in Prometheus text format; of streams those whose view the scope sees.

        `pipelines`: those to include, as `serve.pipelines.listing` lists them.
        """
        visible = [stats for stats in self._streams() if scope.sees(stats.name)]
        running = [pipeline for pipeline in pipelines if pipeline["state"] == "running"]
        collectors: tuple[Any, ...] = (
            self._registry,
            SimpleNamespace(collect=partial(_stream_metrics, visible)),
            SimpleNamespace(collect=partial(_pipeline_metrics, pipelines)),
            SimpleNamespace(collect=partial(_query_metrics, running)),
        )
        return b"".join(map(generate_latest, collectors))


def _pipeline_metrics(pipelines: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Whether pipelines run, and how often they have been restarted after errors."""
    up = GaugeMetricFamily(
        "streamhouse_pipeline_running", "1 if a pipeline runs, else 0", labels=["pipeline"]
    )
    restarts = GaugeMetricFamily(
        "streamhouse_pipeline_restarts", "Restarts after an error", labels=["pipeline"]
    )
    for pipeline in pipelines:
        up.add_metric([pipeline["name"]], pipeline["state"] == "running")
        restarts.add_metric([pipeline["name"]], pipeline["restarts"])
    yield from (up, restarts)


def _query_metrics(pipelines: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """The metrics of the queries of these pipelines."""
    for name, text in HELP.items():
        gauge = GaugeMetricFamily(f"streamhouse_{name}", text, labels=["pipeline", "query"])
        for pipeline in pipelines:
            for query in pipeline["queries"]:
                if name in query["metrics"]:
                    labels = [pipeline["name"], query["name"]]
                    gauge.add_metric(labels, query["metrics"][name])
        yield gauge


def _stream_metrics(streams: Sequence[StreamStats]) -> Iterator[Metric]:
    """The current statistics of streams, labelled by view."""
    yield GaugeMetricFamily(
        "streamhouse_followed_views", "Views with a change stream", len(streams)
    )
    for kind, metrics in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, (text, field, unit) in metrics.items():
            metric = kind(f"streamhouse_stream_{name}", text, labels=["view"])
            for stats in streams:
                value = getattr(stats, field)
                if value is not None:
                    metric.add_metric([stats.name], value / unit)
            yield metric


_GAUGES = {
    "subscribers": ("Subscribers of a view", "subscribers", 1),
    "snapshot": ("Newest snapshot that was sent", "snapshot", 1),
    "freshness_seconds": (
        "Age of the newest change when it was ready to be sent", "freshness_ms", 1000,
    ),
}  # fmt: skip
_COUNTERS = {
    "events": ("Encoded events, each once for all subscribers", "events", 1),
    "rows": ("Encoded changed rows, each once for all subscribers", "rows", 1),
    "encoded_bytes": ("Bytes of encoded events", "bytes", 1),
    "overflows": (
        "Subscribers that were disconnected because they read too slowly", "overflows", 1,
    ),
    "state_rows": ("Rows encoded for first snapshots", "state_rows", 1),
    "polls": ("Polls of a view", "polls", 1),
    "poll_seconds": ("Total duration of the polls", "poll_ms", 1000),
    "failures": ("Polls that failed and were retried", "failures", 1),
}  # fmt: skip
"""Metrics by name: what each is, the field of `StreamStats`, and by what its value is divided."""
