"""Draws a graph as an SVG file without scripts, which follows the viewer's dark or light mode."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise

from streamhouse.graph.layout import Box, Layout, place
from streamhouse.graph.model import Edge, Graph, Node, QueryNode, TableNode

_MARGIN = 24.0
_LEGEND = 34.0
_NAME, _DETAIL, _LINE = 8.7, 6.5, 16.0
"""Widths of a letter (of a bold name, of a detail) and the height of a line, in pixels."""

_STYLE = files(__package__).joinpath("graph.css").read_text()
_COLOURS = (
    "source", "view", "continuous", "bounded", "console", "table", "ods", "dim", "dwd", "dws",
    "app",
)  # fmt: skip
"""What has a colour of its own, in the order of the legend."""


def draw(graph: Graph) -> str:
    """The text of the SVG file."""
    boxes = {node.id: _box(node) for node in graph.nodes}
    links = [(edge.start, edge.end) for edge in graph.edges]
    placed = place(boxes, links)
    width = max(placed.width + 2 * _MARGIN, 420.0)
    height = placed.height + 2 * _MARGIN + _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{escape(_title(graph))}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/>'
        "</marker></defs>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">',
        *(_edge(graph, edge, placed, boxes) for edge in graph.edges if edge.start != edge.end),
        *(_node(node, placed.centres[node.id], boxes[node.id]) for node in graph.nodes),
        "</g>",
        _legend(graph, height - 16),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _title(graph: Graph) -> str:
    tables = sum(isinstance(node, TableNode) for node in graph.nodes)
    return f"{tables} tables and {len(graph.nodes) - tables} queries"


def _lines(node: Node) -> list[str]:
    """The small lines under a node's name."""
    if isinstance(node, QueryNode):
        return [node.place, *node.details]
    return list(node.details)


def _box(node: Node) -> Box:
    lines = _lines(node)
    letters = max([len(node.name) * _NAME, *(len(line) * _DETAIL for line in lines)])
    return Box(letters + 30, _LINE * (1 + len(lines)) + 14)


def _colour(node: Node) -> str:
    if isinstance(node, QueryNode) or node.kind in ("source", "view"):
        return node.kind
    return node.layer or "table"


def _node(node: Node, centre: tuple[float, float], box: Box) -> str:
    left, top = centre[0] - box.width / 2, centre[1] - box.height / 2
    query = isinstance(node, QueryNode)
    radius = min(box.height / 2, 18) if query else 5
    card = "card view" if node.kind == "view" else "card"
    shape = (
        f'<rect class="{card}" x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.0f}"/>'
    )
    colour = f"of-{_colour(node)}"
    if query:
        mark = f'<circle class="{colour}" cx="{left + 13:.1f}" cy="{top + 17:.1f}" r="4"/>'
    else:
        mark = (
            f'<rect class="{colour}" x="{left + 0.5:.1f}" y="{top + 5:.1f}" width="4" '
            f'height="{box.height - 10:.1f}"/>'
        )
    texts = [
        f'<text class="name" x="{left + 22:.1f}" y="{top + 21:.1f}">{escape(node.name)}</text>'
    ]
    for number, line in enumerate(_lines(node), start=1):
        y = top + 21 + number * _LINE
        texts.append(f'<text x="{left + 22:.1f}" y="{y:.1f}">{escape(line)}</text>')
    return "".join([f'<g data-id="{escape(node.id)}">', shape, mark, *texts, "</g>"])


def _edge(graph: Graph, edge: Edge, placed: Layout, boxes: dict[str, Box]) -> str:
    points = list(placed.paths[edge.start, edge.end])
    sign = 1 if points[-1][0] > points[0][0] else -1
    (x0, y0), (x1, y1) = points[0], points[-1]
    points[0] = (x0 + sign * boxes[edge.start].width / 2, y0)
    points[-1] = (x1 - sign * (boxes[edge.end].width / 2 + 2), y1)
    words = ["edge"]
    if edge.kind == "looks up":
        words.append("lookup")
    if any(graph.node(end).kind == "bounded" for end in (edge.start, edge.end)):
        words.append("once")
    tip = f"<title>{escape(edge.label)}</title>" if edge.label else ""
    path = (
        f'<path class="{" ".join(words)}" marker-end="url(#tip)" d="{_curve(points)}">{tip}</path>'
    )
    return path + _label(edge, points)


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """A smooth line through all points, which starts and ends horizontally."""
    commands = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        commands.append(f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}")
    return "".join(commands)


def _label(edge: Edge, points: Sequence[tuple[float, float]]) -> str:
    """A lookup's strategy, above the beginning of its edge."""
    if edge.kind != "looks up":
        return ""
    short = edge.label.split(" · ", 1)[0]
    x0, y0 = points[0]
    lift = -7 if points[1][1] >= y0 else 14
    return f'<text x="{x0 + 4:.1f}" y="{y0 + lift:.1f}">{escape(short)}</text>'


def _legend(graph: Graph, y: float) -> str:
    """The legend of the colours and lines in use."""
    parts = []
    x = _MARGIN
    used = {_colour(node) for node in graph.nodes}
    for word in (colour for colour in _COLOURS if colour in used):
        name = {"bounded": "once", "console": "SELECT"}.get(word, word)
        parts.append(
            f'<circle class="of-{word}" cx="{x + 4:.1f}" cy="{y - 4:.1f}" r="4"/>'
            f'<text x="{x + 13:.1f}" y="{y:.1f}">{name}</text>'
        )
        x += 13 + len(name) * _DETAIL + 18
    if any(edge.kind == "looks up" for edge in graph.edges):
        parts.append(
            f'<path class="edge lookup" d="M{x:.1f} {y - 4:.1f}h26"/>'
            f'<text x="{x + 32:.1f}" y="{y:.1f}">lookup</text>'
        )
    return "".join(parts)
