"""Plans of queries: a run uses those of its dry run if it finds the same by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from streamhouse.errors import StreamhouseError
from streamhouse.sql.plan import CURRENT, AsOf, Name, Resolver, ResolverAround, TableInfo, ViewInfo
from streamhouse.sql.syntax import Query

_T = TypeVar("_T")


class QueryPlans:
    """Plans each query once for each set of answers that a resolver gives."""

    def __init__(self) -> None:
        self._made: defaultdict[Query, list[tuple[object, _Answers, Any]]] = defaultdict(list)

    def plan(
        self,
        query: Query,
        resolver: Resolver,
        arguments: tuple[object, ...],
        make: Callable[[Resolver], _T],
    ) -> _T:
        """What `make` returns for a resolver, which depends on `query` and `arguments` besides."""
        arguments = (resolver.zone, *arguments)
        for former, answers, known in self._made[query]:
            if former == arguments and answers.are_of(resolver):
                plan: _T = known
                return plan
        answers = _Answers(resolver)
        plan = make(answers)
        self._made[query].append((arguments, answers, plan))
        return plan


class _Answers(ResolverAround):
    """Notes what planning has found by name."""

    def __init__(self, resolver: Resolver) -> None:
        super().__init__(resolver)
        self._tables: dict[tuple[Name, AsOf], TableInfo] = {}
        self._views: dict[Name, ViewInfo | None] = {}

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        self._tables[name, as_of] = super().table(name, as_of)
        return self._tables[name, as_of]

    def view(self, name: Name) -> ViewInfo | None:
        self._views[name] = super().view(name)
        return self._views[name]

    def are_of(self, resolver: Resolver) -> bool:
        """Whether another resolver finds the same."""
        try:
            return all(resolver.view(name) == view for name, view in self._views.items()) and all(
                resolver.table(name, as_of) == table
                for (name, as_of), table in self._tables.items()
            )
        except StreamhouseError:
            return False
