"""Parses the project's documents for tests that compare them with the code."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
REFERENCE = ROOT / "docs/reference"
EXAMPLES_OF_REFERENCE = (
    "flink-differences",
    "lookup-joins",
    "mysql-types",
    "sql",
    "sync",
    "tables",
    "views",
    "windows",
)
"""Pages of the reference whose statements and commands a reader runs, as those of the guides."""
GUIDES = (
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *(REFERENCE / f"{name}.md" for name in EXAMPLES_OF_REFERENCE),
)
_ALL = (*GUIDES, ROOT / "docs/README.md", *sorted((ROOT / "docs").glob("[!g]*/*.md")))
DOCUMENTS = tuple(dict.fromkeys(_ALL))

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_KEYWORDS = ("do", "done", "else", "fi", "for", "if", "then", "until", "while", "!", "{", "}")


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is the HTML comment on the line above it, `line` counts from 1."""

    document: Path
    line: int
    language: str
    text: str
    mark: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path, *languages: str) -> list[Block]:
    """The blocks of a document in these languages, in their order."""
    text = document.read_text()
    return [
        Block(
            document,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["mark"] or "",
        )
        for found in _FENCE.finditer(text)
        if found["language"] in languages
    ]


def programs(block: Block) -> set[str]:
    """The commands that a block of shell calls."""
    text = re.sub(r"(?ms)(<<-?\s*'?(\w+)'?.*?\n).*?^\2$", r"\1", block.text)
    text = re.sub(r"(?m)(^|\s)#.*$", r"\1", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.commenters = " \t\r", ""
    found, begins = set[str](), True
    for token in lexer:
        if set(token) <= set("();|&\n"):
            begins = True
        elif begins and token in _KEYWORDS:
            continue
        elif begins and not re.match(r"\w+=|\$", token):
            found.add(token)
            begins = False
    return found


def code_words(text: str) -> set[str]:
    """All that stands in `back quotes` in a text, outside of blocks."""
    return set(re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)))
