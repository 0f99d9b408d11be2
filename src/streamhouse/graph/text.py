"""Renders a graph as a tree for the terminal: each table once, below it what reads it."""

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from streamhouse.graph.model import Edge, Graph, QueryNode, TableNode

_KINDS = {"source": "cyan", "table": "bold", "view": "magenta"}
_MODES = {"continuous": "green", "bounded": "yellow", "console": "green"}
_GUIDES = "bright_black"


def render(graph: Graph) -> RenderableType:
    """What `rich` prints; it wraps at the console's width."""
    return _TreeRenderer(graph).render()


class _TreeRenderer:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._drawn: set[str] = set()

    def render(self) -> RenderableType:
        tree = Tree("", guide_style=_GUIDES, highlight=False, hide_root=True)
        fed = {edge.end for edge in self._graph.edges}
        roots = [node for node in self._graph.nodes if node.id not in fed]
        # After the roots only cycles are left, which have none.
        for node in [*roots, *self._graph.nodes]:
            if node.id not in self._drawn and any(self._out(node.id, "reads", "writes")):
                self._add(tree, node)
        for node in self._graph.nodes:
            if node.id not in self._drawn:
                self._add(tree, node)
        return tree if tree.children else Text("the script moves no rows", style="dim")

    def _add(self, tree: Tree, node: TableNode | QueryNode) -> None:
        if isinstance(node, TableNode):
            self._add_table(tree, node)
        else:
            self._add_query(tree, node)

    def _below(self, tree: Tree, table: TableNode) -> None:
        self._drawn.add(table.id)
        for edge in self._out(table.id, "reads"):
            self._add(tree, self._graph.node(edge.end))

    def _add_table(self, tree: Tree, table: TableNode) -> None:
        if table.id in self._drawn:
            tree.add(Text.assemble(("→ ", _GUIDES), table.name, (" (above)", "dim")))
            return
        self._below(tree.add(self._table_text(table)), table)

    def _add_query(self, tree: Tree, query: QueryNode) -> None:
        targets = [self._graph.node(edge.end) for edge in self._out(query.id, "writes")]
        label = Text.assemble(
            (query.name, _MODES[query.kind]), (f" {query.place}", "dim"), _dotted(query.details)
        )
        if query.id in self._drawn:
            tree.add(label.append(" (above)", style="dim"))
            return
        for target in targets:
            again = Text(" (above)", style="dim") if target.id in self._drawn else Text()
            label.append(" → ").append_text(self._table_text(target)).append_text(again)
        self._drawn.add(query.id)
        branch = tree.add(label)
        for edge in self._graph.edges:
            if edge.end == query.id and edge.kind == "looks up":
                branch.add(self._lookup_text(edge))
        for target in targets:
            if isinstance(target, TableNode) and target.id not in self._drawn:
                self._below(branch, target)

    def _table_text(self, node: TableNode | QueryNode) -> Text:
        assert isinstance(node, TableNode)
        return Text.assemble((node.name, _KINDS[node.kind]), _dotted(node.details))

    def _lookup_text(self, edge: Edge) -> Text:
        name = self._graph.node(edge.start).name
        return Text.assemble(("┄ lookup ", _GUIDES), (name, "bold"), (f" · {edge.label}", "dim"))

    def _out(self, node_id: str, *kinds: str) -> list[Edge]:
        return [e for e in self._graph.edges if e.start == node_id and e.kind in kinds]


def _dotted(details: tuple[str, ...]) -> Text:
    return Text("".join(f" · {detail}" for detail in details), style="dim")
