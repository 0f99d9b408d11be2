"""The records of a script's graph: tables, views, queries, and the edges between them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

TableKind = Literal["source", "table", "view"]
QueryKind = Literal["continuous", "bounded", "console"]
EdgeKind = Literal["reads", "writes", "looks up"]

LAYERS = ("ods", "dim", "dwd", "dws", "app")
"""The layers of a warehouse, by the prefixes of the names of tables or databases."""


@dataclass(frozen=True)
class TableNode:
    """A table or a view; `id` is `database.table`, `layer` one of `LAYERS` if its name says so."""

    id: str
    kind: TableKind
    name: str
    details: tuple[str, ...] = ()
    layer: str | None = None


@dataclass(frozen=True)
class QueryNode:
    """A statement that moves rows: a continuous INSERT, a bounded one, or a SELECT of a stream.

    `file`: the statement's file, if the script has several. `plan`: the lines of a view's tree of
    operators.
    """

    id: str
    kind: QueryKind
    name: str
    line: int
    details: tuple[str, ...] = ()
    file: str | None = None
    plan: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The file and line of the statement, for people."""
        return f"line {self.line}" if self.file is None else f"{self.file} line {self.line}"


Node = TableNode | QueryNode


@dataclass(frozen=True)
class Edge:
    """A flow of rows from one node to another; `label` describes how a lookup finds them."""

    start: str
    end: str
    kind: EdgeKind
    label: str = ""


@dataclass(frozen=True)
class Graph:
    """Nodes in the order in which the script names them, and their edges."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def record(self) -> dict[str, Any]:
        """`{"nodes": [{"id", "kind", …}], "edges": [{"from", "to", "kind", "label"}]}`."""
        return {
            "nodes": list(map(asdict, self.nodes)),
            "edges": [
                {"from": edge.start, "to": edge.end, "kind": edge.kind, "label": edge.label}
                for edge in self.edges
            ],
        }


def layer_of(name: tuple[str, ...]) -> str | None:
    """The layer that a table's name, or its database's, begins with; None if neither does."""
    for part in reversed(name[-2:]):
        word = part.lower().split("_", 1)[0]
        if word in LAYERS:
            return word
    return None
