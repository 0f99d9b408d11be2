"""Places the boxes of a drawing in columns from left to right: few crossings, straight edges."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 12
_PULLS = 24
GAP = 26.0
"""The distance between two boxes of a column, in pixels."""
_EDGE_HEIGHT = 14.0
"""The height that an edge takes where it passes through a column, in pixels."""


@dataclass(frozen=True)
class Box:
    """The size of a node."""

    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """A drawing: the centre of each node, each edge's points, and the size of all."""

    centres: Mapping[str, tuple[float, float]]
    paths: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]
    width: float
    height: float


Link = tuple[str, str]
Neighbours = dict[str, tuple[list[str], list[str]]]
"""The names to which each name has links, in the columns to its left and to its right."""


def place(boxes: Mapping[str, Box], links: Sequence[Link], column_gap: float = 56.0) -> Layout:
    """Place all boxes; every link goes from left to right, unless it closes a cycle."""
    forward = _acyclic(links)
    ranks = _ranks(boxes, forward)
    columns, chains = _columns(boxes, forward, ranks)
    sizes = {
        name: boxes[name].height if name in boxes else _EDGE_HEIGHT for c in columns for name in c
    }
    neighbours = _neighbours(sizes, chains.values())
    _uncross(columns, neighbours)
    rows = _rows(columns, neighbours, sizes)
    widths = [max([boxes[n].width for n in c if n in boxes], default=0.0) for c in columns]
    lefts = [sum(widths[:i]) + column_gap * i for i in range(len(columns))]
    centres = {
        name: (lefts[i] + widths[i] / 2, rows[name]) for i, c in enumerate(columns) for name in c
    }
    paths = {}
    for link in links:
        chain = chains.get(link) or list(reversed(chains.get((link[1], link[0]), [])))
        paths[link] = tuple(centres[name] for name in chain)
    bottom = max((rows[n] + sizes[n] / 2 for n in rows), default=0.0)
    known = {name: at for name, at in centres.items() if name in boxes}
    return Layout(known, paths, (lefts[-1] + widths[-1]) if columns else 0.0, bottom)


def _acyclic(links: Sequence[Link]) -> list[Link]:
    """The links, with those that close a cycle reversed, and without links of a node to itself."""
    after: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for start, end in links:
        reached, to_visit = set[str](), [end]
        while to_visit:
            name = to_visit.pop()
            if name not in reached:
                reached.add(name)
                to_visit += after[name]
        first, last = (end, start) if start in reached else (start, end)
        if first != last:
            after[first][last] = None
    return [(start, end) for start, ends in after.items() for end in ends]


def _ranks(names: Collection[str], links: Sequence[Link]) -> dict[str, int]:
    """The column of each node: after all its predecessors.

    A node without predecessors is in the column before its first successor.
    """
    ranks = dict.fromkeys(names, 0)
    for _ in names:
        for start, end in links:
            ranks[end] = max(ranks[end], ranks[start] + 1)
    fed = {end for _, end in links}
    for name in names:
        used = [ranks[end] for start, end in links if start == name]
        if name not in fed and used:
            ranks[name] = min(used) - 1
    return ranks


def _columns(
    boxes: Mapping[str, Box], links: Sequence[Link], ranks: Mapping[str, int]
) -> tuple[list[list[str]], dict[Link, list[str]]]:
    """The names in each column, with a dummy node where a link passes; the chain of each link."""
    columns: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for name in boxes:
        columns[ranks[name]].append(name)
    chains: dict[Link, list[str]] = {}
    for start, end in links:
        chain = [start]
        for rank in range(ranks[start] + 1, ranks[end]):
            chain.append(f"{start}\0{end}\0{rank}")
            columns[rank].append(chain[-1])
        chains[start, end] = [*chain, end]
    return columns, chains


def _neighbours(names: Iterable[str], chains: Iterable[Sequence[str]]) -> Neighbours:
    neighbours: Neighbours = {name: ([], []) for name in names}
    for chain in chains:
        for left, right in pairwise(chain):
            neighbours[left][1].append(right)
            neighbours[right][0].append(left)
    return neighbours


def _uncross(columns: list[list[str]], neighbours: Neighbours) -> None:
    """Order the names of each column so that few links cross."""
    best, fewest = [list(c) for c in columns], _crossings(columns, neighbours)
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for before, column in pairwise(columns if side == 0 else columns[::-1]):
            at = {name: float(place) for place, name in enumerate(before)}
            weights = {
                name: _mean([at[other] for other in neighbours[name][side]], place)
                for place, name in enumerate(column)
            }
            column.sort(key=weights.__getitem__)
        crossings = _crossings(columns, neighbours)
        if crossings < fewest:
            best, fewest = [list(c) for c in columns], crossings
    columns[:] = best


def _crossings(columns: Sequence[Sequence[str]], neighbours: Neighbours) -> int:
    count = 0
    for left, right in pairwise(columns):
        at = {name: i for i, name in enumerate(right)}
        ends = [end for name in left for end in sorted(at[n] for n in neighbours[name][1])]
        count += sum(1 for i, a in enumerate(ends) for b in ends[i + 1 :] if b < a)
    return count


def _rows(
    columns: Sequence[Sequence[str]], neighbours: Neighbours, sizes: Mapping[str, float]
) -> dict[str, float]:
    """The vertical centre of each name: near its neighbours, below the name before it."""
    rows: dict[str, float] = {}
    for column in columns:
        below = 0.0
        for name in column:
            rows[name] = below + sizes[name] / 2
            below += sizes[name] + GAP
    for pull in range(_PULLS):
        for column in columns if pull % 2 == 0 else columns[::-1]:
            targets = [
                _mean([rows[n] for side in neighbours[name] for n in side], rows[name])
                for name in column
            ]
            distances = [(sizes[a] + sizes[b]) / 2 + GAP for a, b in pairwise(column)]
            for name, row in zip(column, _spread(targets, distances), strict=True):
                rows[name] = row
    top = min((rows[name] - sizes[name] / 2 for name in rows), default=0.0)
    return {name: row - top for name, row in rows.items()}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(targets: Sequence[float], distances: Sequence[float]) -> list[float]:
    """The positions nearest to the wanted ones that keep their order and distances."""
    shifts = [0.0]
    for gap in distances:
        shifts.append(shifts[-1] + gap)
    # After subtracting the distances, neighbours that would swap places share their mean.
    blocks: list[tuple[float, int]] = []
    for value, shift in zip(targets, shifts, strict=False):
        blocks.append((value - shift, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, n), (b, m) = blocks[-2:]
            blocks[-2:] = [((a * n + b * m) / (n + m), n + m)]
    flat = [value for value, count in blocks for _ in range(count)]
    return [value + shift for value, shift in zip(flat, shifts, strict=False)]
