"""What a worker process keeps open for a query between batches."""

import os
from functools import cached_property

from streamhouse.connectors.base import Sink
from streamhouse.runtime.query_operator import QueryOperator
from streamhouse.runtime.query_source import open_source
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.lookup_journal import LookupJournal
from streamhouse.runtime.streaming.dimensions.open_dimensions import Dimensions
from streamhouse.source import Source


class WorkerResources:
    """The open source, lookups, sink and compiled SQL of one query; each is opened when needed."""

    def __init__(self, spec: QuerySpec) -> None:
        self.spec = spec
        self._operators: dict[bool, QueryOperator] = {}

    def operator(self, number: bool = False) -> QueryOperator:
        """The compiled SQL; `number`: its rows have the numbers of their source rows."""
        if number not in self._operators:
            spec = self.spec
            target = spec.target.planned() if spec.sink is None else spec.sink
            self._operators[number] = QueryOperator(
                spec.query, target.arrow_schema, spec.combine(), number, target.primary_key
            )
        return self._operators[number]

    @cached_property
    def dimensions(self) -> Dimensions:
        """The lookups' tables."""
        return Dimensions(self.spec.dimensions(), self.spec.strategies)

    @cached_property
    def journal(self) -> LookupJournal | None:
        """The journal of lookups on servers; None without these."""
        return None if self.spec.lookup_journal is None else LookupJournal(self.spec)

    @cached_property
    def source(self) -> Source:
        """The source; its connections stay open."""
        return open_source(self.spec)

    @cached_property
    def sink(self) -> Sink:
        """Where the rows are written."""
        return self.spec.open_sink()

    def close(self) -> None:
        """Close what has been opened and does not close itself once it is unused."""
        if "dimensions" in vars(self):
            self.dimensions.close()
        if "source" in vars(self):
            self.source.close()


_open: dict[tuple[int, str], WorkerResources] = {}


def resources_of(spec: QuerySpec) -> WorkerResources:
    """This process's resources of a query.

    They last as long as the process, or until the query has another specification: a Python worker
    may outlive the run that started it, and the next run of the same SELECT may have other options,
    or other versions of its tables.
    """
    key = os.getpid(), spec.query_id
    found = _open.get(key)
    if found is None or found.spec != spec:
        if found is not None:
            found.close()
        found = _open[key] = WorkerResources(spec)
    return found


def close_resources(query_id: str) -> None:
    """Close what this process keeps open for a query that has ended."""
    found = _open.pop((os.getpid(), query_id), None)
    if found is not None:
        found.close()
