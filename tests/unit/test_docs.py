"""The docs agree with the code: names, options, scripts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.documents import DOCUMENTS, GUIDES, ROOT, Block, blocks, code_words, programs

from streamhouse.cli.main import COMMANDS
from streamhouse.connectors.registry import check_declaration, declared
from streamhouse.errors import NotStreamedError, TableError
from streamhouse.operators.planning.view_plan import plan_view, plan_view_into
from streamhouse.paimon.schema.options.table_options import check_table_options
from streamhouse.paimon.spark import options
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.batch.dml_plan import analyze_dml
from streamhouse.sql.functions import supported
from streamhouse.sql.options import known_options
from streamhouse.sql.parser import hints
from streamhouse.sql.plan import CURRENT, AsOf, Name, Resolver, TableInfo, ViewInfo
from streamhouse.sql.statements import script
from streamhouse.sql.statements.create_view import CreateView
from streamhouse.sql.streaming.query_planner import is_bounded, plan_stream_queries
from streamhouse.sql.syntax import (
    CreateTable,
    DmlStatement,
    Insert,
    Select,
    SetOption,
    Statement,
    StatementSet,
)
from streamhouse.sql.views.statement import CreateMaterializedView

PACKAGE = ROOT / "src/streamhouse"
SQL = (ROOT / "docs/reference/sql.md").read_text()
LOOKUPS = (ROOT / "docs/reference/lookup-joins.md").read_text()
PYTHON_GUIDE = (ROOT / "docs/guides/python-data-sources.md").read_text()
SCRIPTS = [block for document in GUIDES for block in blocks(document, "sql")]
EXAMPLES = sorted((ROOT / "examples").glob("*.sql"))
LATER = {"docs/demo.svg"}
"""Files that a document may name before they are there."""


class Scratch(Resolver):
    """The tables and views that a script creates, by their last name."""

    def __init__(self) -> None:
        self.tables: dict[str, TableInfo] = {}
        self.views: dict[str, ViewInfo] = {}

    def view(self, name: Name) -> ViewInfo | None:
        return self.views.get(name[-1])

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        if name[-1] not in self.tables:
            raise TableError(f"there is no table '{name[-1]}'")
        return self.tables[name[-1]]

    def take(self, statement: Statement) -> int:
        """Check a statement; how many queries it has."""
        match statement:
            case CreateTable():
                self._create(statement)
            case CreateView():
                info = ViewInfo(statement.name, (), statement.query.text)
                self.views[statement.name[-1]] = info
            case SetOption(key=str(key), value=str(value)):
                known_options.check_set(key, value)
            case CreateMaterializedView():
                plan = plan_view(statement.query, self, statement.columns, statement.primary_key)
                self.tables[statement.name[-1]] = TableInfo(statement.name, plan.columns)
                return 1
            case StatementSet():
                return sum(self.take(insert) for insert in statement.inserts)
            case Insert():
                target = self.table(statement.target)
                read = analyze_bounded if is_bounded(statement.query, self) else plan_stream_queries
                try:
                    read(statement.query, self, target, statement.columns)
                except NotStreamedError:
                    if target.primary_key:
                        raise
                    plan_view_into(statement.query, self, target, statement.columns, closed=True)
                return 1
            case Select():
                plan_stream_queries(statement.query, self)
                return 1
            case DmlStatement():
                analyze_dml(statement, self)
                return 1
        return 0

    def _create(self, statement: CreateTable) -> None:
        given = dict(statement.options)
        connector = given.pop("connector", "paimon")
        name = statement.name[-1]
        if connector == "paimon":
            check_table_options(given, name)
        self.tables[name] = TableInfo(
            statement.name,
            statement.columns,
            statement.computed,
            statement.primary_key,
            statement.partitioned_by,
            given,
            connector,
            watermark=statement.watermark,
        )
        if connector != "paimon":
            check_declaration(self.tables[name], name)
            self.tables[name] = declared(self.tables[name])


def queries_of(text: str) -> int:
    session = Scratch()
    return sum(session.take(statement) for statement in script.parse_script(text))


@pytest.mark.parametrize("block", SCRIPTS, ids=str)
def test_sql_in_guides_is_valid(block: Block) -> None:
    assert queries_of(block.text) > 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert queries_of(path.read_text()) > 0


def test_the_readme_shows_the_example_that_it_runs() -> None:
    displayed = [block.text for block in blocks(ROOT / "README.md", "sql")]
    assert displayed == [(ROOT / "examples/spending.sql").read_text()]


@pytest.mark.parametrize(
    ("guide", "known"),
    [
        (SQL, supported.known()),
        (SQL, known_options.SET_OPTIONS),
        (LOOKUPS, known_options.LOOKUP_OPTIONS),
        (LOOKUPS, hints.LOOKUP_HINT_KEYS),
        (PYTHON_GUIDE, options._ALL),
    ],
    ids=["functions", "set", "lookup", "hints", "paimon"],
)
def test_docs_name_all_options(guide: str, known: list[str]) -> None:
    assert sorted(set(known) - code_words(guide)) == []


def test_the_sql_reference_names_all_statements() -> None:
    words = {word.split()[0].rstrip("…") for word in code_words(SQL) if word.split()}
    alike = {"DESC": "DESCRIBE"}
    known = {alike.get(word, word) for word in script._STATEMENTS}
    assert sorted(known - words) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(document))
    assert [target for target in targets if not leads(document, target)] == []


def leads(document: Path, target: str) -> bool:
    """Whether a file is there, and the heading in it that a link names."""
    path, _, anchor = target.partition("#")
    page = document.parent / path if path else document
    if not page.exists():
        return target in LATER
    return not anchor or page.suffix != ".md" or anchor in anchors(page)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$", "", page.read_text())


GUIDE_WORDS = 2500


@pytest.mark.parametrize(
    "guide", sorted((ROOT / "docs/guides").glob("*.md")), ids=lambda path: path.stem
)
def test_a_guide_is_short(guide: Path) -> None:
    assert len(guide.read_text().split()) < GUIDE_WORDS, "move what is looked up to docs/reference"


def test_the_architecture_names_every_package() -> None:
    text = (ROOT / "docs/reference/architecture.md").read_text()
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert sorted(there - {"__init__", "__pycache__", "py"} - code_words(text)) == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/reference/architecture.md"])
def test_modules_that_the_map_names_are_there(document: str) -> None:
    packages = "|".join(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    named = re.findall(rf"`((?:{packages})(?:\.\w+)+)`", (ROOT / document).read_text())
    assert named
    assert [name for name in named if not is_there(name.split("."))] == []


def is_there(names: list[str]) -> bool:
    """Whether these are a package or module, or one and a name that it defines."""
    path = PACKAGE
    while names and (path / names[0]).is_dir():
        path /= names.pop(0)
    if names and (path / f"{names[0]}.py").exists():
        path /= f"{names.pop(0)}.py"
    module = path if path.is_file() else path / "__init__.py"
    return not names or re.search(rf"\b{names[0]}\b", module.read_text()) is not None


def test_programs_of_guides_are_there() -> None:
    """Set-up installs them: a machine that was not prepared has few."""
    run = [
        block
        for guide in GUIDES
        for block in blocks(guide, "bash")
        if not block.mark.startswith("not run: it needs")
    ]
    used = {name for block in run for name in programs(block)}
    assert {"curl", "openssl", "streamhouse"} <= used
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = subprocess.run(["bash", "-c", "enable"], capture_output=True, text=True, check=True)
    builtins = {line.split()[-1] for line in shell.stdout.splitlines()}
    assert {name for name in used - builtins if shutil.which(name, path=path) is None} == set()


def test_commands_in_documents_exist() -> None:
    text = "".join(document.read_text() for document in DOCUMENTS)
    named = set(re.findall(r"(?m)^(?:timeout \S+ )?streamhouse ([a-z]+)", text))
    assert named
    assert named <= set(COMMANDS)


def test_make_targets_in_documents_exist() -> None:
    text = "".join(document.read_text() for document in DOCUMENTS)
    named = set(re.findall(r"`make ([a-z]+)`|(?m:^make ([a-z]+))", text))
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?m)^([a-z]+):", makefile))
    assert {first or second for first, second in named} <= targets


DECISIONS = ROOT / "docs/decisions"


def cited(pattern: str) -> set[str]:
    """What source, tests and docs cite in this form."""
    found = subprocess.run(
        ["grep", "-rhoE", "--exclude-dir=__pycache__", pattern, "src", "tests", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.splitlines())


def test_decisions_are_numbered_and_citations_lead_to_them() -> None:
    records = sorted(path.name for path in DECISIONS.glob("*.md"))
    numbers = {name[:3] for name in records}
    assert len(numbers) == len(records)
    paths = {line.removeprefix("docs/") for line in cited(r"docs/decisions/[a-z0-9.-]*[a-z0-9]")}
    assert paths <= {f"decisions/{name}" for name in records}
    named = {line[-3:] for line in cited(r"[Dd]ecisions? [0-9]{3}\b")}
    assert named <= numbers


def test_links_to_decisions_show_their_number() -> None:
    for document in DOCUMENTS:
        links = re.findall(r"\[(?:[Dd]ecision )?(\d{3})\]\(([^)]+)\)", document.read_text())
        assert [] == [link for link in links if not Path(link[1]).name.startswith(f"{link[0]}-")]


def test_the_index_lists_every_decision_by_its_title() -> None:
    index = (DECISIONS / "README.md").read_text()
    for file in sorted(DECISIONS.glob("[0-9]*.md")):
        number, _, title = file.read_text().splitlines()[0].removeprefix("# ").partition(": ")
        line = f"- [{number}]({file.name}): {title}\n"
        assert index.count(line) == 1, f"docs/decisions/README.md lacks, below a topic: {line}"
    assert index.count("\n- ") == len(list(DECISIONS.glob("[0-9]*.md")))


def test_a_number_is_superseded_by_one_decision() -> None:
    table = (DECISIONS / "README.md").read_text().split("| decision | supersedes |\n")[1]
    former = re.findall(r"\b(\d{3})(?=,| \|$)", table, re.MULTILINE)
    assert len(former) == len(set(former)) > 0
    assert not {file.name[:3] for file in DECISIONS.glob("[0-9]*.md")} & set(former)
