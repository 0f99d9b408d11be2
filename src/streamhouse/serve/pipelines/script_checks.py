"""Checks and draws scripts in worker processes, so that none can hang or kill the server.

docs/decisions/064-what-clients-of-the-server-may-do.md says why.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from streamhouse.errors import LimitError, TimeLimitError
from streamhouse.serve.errors import hide_path
from streamhouse.serve.queries.executor import QueryExecutor

PLAN_S = 10.0
"""How long planning one script may take."""
_CACHED_RESULTS = 32


class ScriptChecks:
    """Plans scripts for the clients of one server; `warehouse` are the options of its catalog.

    With `functions`, the modules of Python functions may be imported, which executes code. Without
    it, creating such a function is an error.
    """

    def __init__(
        self, executor: QueryExecutor, warehouse: Mapping[str, str], plan_s: float = PLAN_S
    ) -> None:
        self._executor = executor
        self._warehouse = dict(warehouse)
        self._plan_s = plan_s
        self._drawings: OrderedDict[tuple[str, bool], dict[str, Any]] = OrderedDict()

    async def check(self, client: str, sql: str, functions: bool = False) -> dict[str, Any]:
        """Plan a script without running it.

        Returns `{"ok": true, "statements", "graph"}` or `{"ok": false, "error": {"message", "line",
        "column"}}`; a script that exceeds the time or memory limit is such an error too. Raises
        `Problem` busy if other scripts are being checked for too long.
        """
        return await self._request(client, {"sql": sql, "functions": functions})

    async def draw(self, client: str, sql: str, functions: bool = False) -> dict[str, Any]:
        """As `check` for a script that already runs, with its graph drawn as `svg`.

        The tables that the script creates may exist already. The last 32 results are cached.
        """
        result = self._drawings.get((sql, functions))
        if result is None:
            request = {"sql": sql, "applied": True, "svg": True, "functions": functions}
            result = await self._request(client, request)
            if result["ok"]:
                self._drawings[sql, functions] = result
                if len(self._drawings) > _CACHED_RESULTS:
                    self._drawings.popitem(last=False)
        return result

    async def _request(self, client: str, request: Mapping[str, Any]) -> dict[str, Any]:
        script = {**request, "warehouse": self._warehouse}
        try:
            response = await self._executor.check(client, script, self._plan_s)
        except TimeLimitError:
            return _error(f"planning the script takes longer than {self._plan_s:g} s; split it")
        except LimitError:
            return _error("planning the script takes too much memory; split it")
        if not response["ok"]:
            error, warehouse = response["error"], self._warehouse["warehouse"]
            error["message"] = hide_path(error["message"], warehouse)
        return response


def _error(message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"message": message, "line": None, "column": None}}
