"""Writes the parts of the docs that are made from the code.

    scripts/generate_docs.py           write them
    scripts/generate_docs.py --check   only tell which are outdated; exit code 1 if one is

`docs/reference/connectors.md` comes from what connectors declare (`streamhouse.connectors`),
`docs/reference/packages.md` from the docstrings of the packages, and the picture in
`docs/reference/architecture.md` from the imports.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import grimp

from streamhouse.connectors.base import Connector, Option
from streamhouse.connectors.registry import connector, names

_Group: TypeAlias = tuple[str, ...]

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs/reference"
_BEGIN, _END = "<!-- generated: picture -->\n", "<!-- end of picture -->\n"
_COMMAND = "`scripts/generate_docs.py`"


def connectors_page() -> str:
    """The page on all connectors."""
    kinds = [connector(name) for name in names()]
    lines = [
        "# Connectors",
        "",
        f"Written by {_COMMAND} from what each connector declares.",
        "",
        "| connector | continuous query | bounded SELECT | lookup join | INSERT |",
        "|---|---|---|---|---|",
        *(_capabilities(kind) for kind in kinds),
        "",
        "## What sinks guarantee",
        "",
        "`INSERT` takes continuous and bounded queries. After a crash a sink has each row exactly",
        "once, or at least once: it writes an interrupted micro-batch again. `EXPLAIN`",
        "of an INSERT shows the guarantee of its table with its options.",
        "",
        "| sink | takes | after a crash | how |",
        "|---|---|---|---|",
        *(_delivery(kind) for kind in kinds if kind.capabilities.sink),
    ]
    for kind in kinds:
        lines += ["", f"## {kind.name}", "", kind.summary, *_options(kind)]
        lines += _metadata(kind)
    return "\n".join(lines) + "\n"


def _capabilities(kind: Connector) -> str:
    can = kind.capabilities
    changes = {True: "changelog", False: "appended rows", None: "changelog or appended rows"}
    lookup = "by queries on the server" if can.server else "by snapshot"
    cells = [
        f"[`{kind.name}`](#{kind.name})",
        changes[can.changelog] if can.stream else "",
        kind.scan_note if can.scan else "",
        lookup if can.lookup else "",
        "yes" if can.sink else "",
    ]
    return f"| {' | '.join(cells)} |"


def _delivery(kind: Connector) -> str:
    cells = [f"[`{kind.name}`](#{kind.name})", kind.takes, kind.guarantee, kind.guarantee_note]
    return f"| {' | '.join(cells)} |"


def _metadata(kind: Connector) -> Iterator[str]:
    if kind.metadata:
        yield from ("", "| `METADATA` key | type | value |", "|---|---|---|")
        yield from (f"| `{m.key}` | {m.type} | {m.doc} |" for m in kind.metadata)


def _options(kind: Connector) -> Iterator[str]:
    if kind.options:
        yield from ("", "| option | type | default | meaning |", "|---|---|---|---|")
        yield from (_option(option) for option in kind.options)
    if kind.without_effect:
        yield from ("", "Accepted, without effect:", "")
        yield from (f"- `{key}`: {why}" for key, why in kind.without_effect.items())


def _option(option: Option) -> str:
    default = "needed" if option.required else f"`{option.default}`" if option.default else ""
    return f"| `{option.key}` | {option.type} | {default} | {option.doc} |"


def package_picture() -> str:
    """The packages and which imports which, as a Mermaid graph without what follows from others."""
    graph = _imports()
    children = sorted(graph.find_children("streamhouse"))
    packages = [name for name in children if graph.find_children(name)]
    direct = {
        one: {
            other
            for other in packages
            if other != one
            and graph.direct_import_exists(importer=one, imported=other, as_packages=True)
        }
        for one in packages
    }
    # Packages that import each other are one in the picture.
    mutual = {
        one: tuple(sorted({one, *(other for other in direct[one] if one in direct[other])}))
        for one in packages
    }
    below = {
        group: {mutual[other] for one in group for other in direct[one]} - {group}
        for group in mutual.values()
    }
    lines = ["```mermaid", "graph TD"]
    for group in sorted(below):
        through = {far for near in below[group] for far in _reached(near, below)}
        for other in sorted(below[group] - through):
            lines.append(f"  {_node(group)} --> {_node(other)}")
    return "\n".join([*lines, "```"]) + "\n"


def _node(group: tuple[str, ...]) -> str:
    names = [_short(one) for one in group]
    return names[0] if len(names) == 1 else f'{"_".join(names)}["{", ".join(names)}"]'


def _reached(start: _Group, direct: dict[_Group, set[_Group]]) -> set[_Group]:
    found: set[_Group] = set()
    waiting = [*direct[start]]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += direct[one]
    return found


def packages_page() -> str:
    """Each package with the first sentence of its docstring."""
    graph = _imports()
    lines = [
        "# Packages",
        "",
        f"Written by {_COMMAND} from the docstrings of the packages of `src/streamhouse`. "
        "[Architecture](architecture.md) shows how they work together.",
        "",
        "| package | what it is |",
        "|---|---|",
    ]
    for one in sorted(graph.modules):
        path = ROOT / "src" / one.replace(".", "/") / "__init__.py"
        if one != "streamhouse" and path.is_file():
            lines.append(f"| `{one.removeprefix('streamhouse.')}` | {_summary(path)} |")
    return "\n".join(lines) + "\n"


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def _short(module: str) -> str:
    return module.removeprefix("streamhouse.")


def _imports() -> grimp.ImportGraph:
    return grimp.build_graph("streamhouse", exclude_type_checking_imports=True, cache_dir=None)


def generated() -> dict[Path, str]:
    """The files as they should be."""
    architecture = REFERENCE / "architecture.md"
    head, _, rest = architecture.read_text().partition(_BEGIN)
    tail = rest.partition(_END)[2]
    return {
        REFERENCE / "connectors.md": connectors_page(),
        REFERENCE / "packages.md": packages_page(),
        architecture: f"{head}{_BEGIN}{package_picture()}{_END}{tail}",
    }


def outdated() -> list[Path]:
    """The files that are not as they should be."""
    return [
        path for path, text in generated().items() if not path.is_file() or path.read_text() != text
    ]


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        stale = outdated()
        for path in stale:
            print(f"{path.relative_to(ROOT)} is outdated: run scripts/generate_docs.py")
        return 1 if stale else 0
    for path, text in generated().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
