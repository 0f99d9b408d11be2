"""Finds and reads modules of Python functions, and imports them from the text that was read.

The driver reads a module once, when CREATE FUNCTION runs. Executors get its text with the plan, so
all tasks of a run have the same code, even if the file changes or disappears.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from streamhouse.close_matches import nearest
from streamhouse.errors import QueryError, SqlError
from streamhouse.sql.udf import registry
from streamhouse.sql.udf.function import Declaration, Module, ModuleSources, PythonFunction
from streamhouse.sql.udf_modules.signature import SignatureError, signature_of

_MOST_BYTES = 1 << 20
_PACKAGE = "streamhouse"


class _SourceFinder(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Imports modules from texts in memory; takes precedence over files."""

    def __init__(self) -> None:
        self._modules: dict[str, Module] = {}

    def add(self, sources: ModuleSources) -> None:
        """Import from these texts from now on; unloads modules imported from another version."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        if sources.folder not in sys.path:
            sys.path.append(sources.folder)
        changed = [source for source in sources.modules if self._modules.get(source.name) != source]
        # Modules that import a changed module must be imported again, too.
        replaced = any(source.name in self._modules for source in changed)
        for module in sources.modules if replaced else changed:
            self._modules[module.name] = module
            sys.modules.pop(module.name, None)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        module = self._modules.get(name)
        if module is None:
            return None
        search_locations = [str(Path(module.path).parent)] if module.is_package else None
        return importlib.util.spec_from_file_location(
            name, module.path, loader=self, submodule_search_locations=search_locations
        )

    def get_source(self, name: str) -> str:
        return self._modules[name].text

    def get_filename(self, name: str) -> str:
        return self._modules[name].path


_finder = _SourceFinder()


def search(folders: Sequence[Path]) -> None:
    """Append these folders to the search path of modules, `sys.path`."""
    for folder in folders:
        path = str(folder.absolute())
        if path not in sys.path:
            sys.path.append(path)


def define(declaration: Declaration) -> PythonFunction:
    """Import a declared function; `SqlError` if it does not exist, or if SQL cannot call it.

    It runs for CREATE FUNCTION only; planning a query imports no modules.
    """
    function, compute = _loaded(declaration, None)
    registry.define(declaration, function, compute)
    return function


def compute_of(function: PythonFunction) -> Callable[..., Any]:
    """The Python callable, imported from the plan's sources if this process has not defined it.

    Raises `QueryError` if an installed module is missing, or differs from that of the driver.
    """
    compute = registry.compute_of(function)
    if compute is None:
        declaration = Declaration(function.name, function.target)
        try:
            loaded, compute = _loaded(declaration, function.sources)
        except SqlError as error:
            raise QueryError(f"function {function.name}: {error}") from None
        if loaded != function:
            raise QueryError(
                f"function {function.name}: '{function.target}' differs from the one that the "
                "query was planned with; install the same version of its module here"
            )
        registry.add(function, compute)
    return compute


def _loaded(
    declaration: Declaration, sources: ModuleSources | None
) -> tuple[PythonFunction, Callable[..., Any]]:
    """A declared function and its Python callable, from these sources or else its module."""
    sources = sources or _read_sources(declaration.module)
    compute = _imported(declaration, sources)
    try:
        signature = signature_of(compute)
    except SignatureError as error:
        raise SqlError(f"function '{declaration.target}': {error}") from None
    digest = "" if sources is None else sources.digest
    return PythonFunction(declaration.name, declaration.target, signature, digest, sources), compute


def _imported(declaration: Declaration, sources: ModuleSources | None) -> Callable[..., Any]:
    if sources is not None:
        _finder.add(sources)
    try:
        module = importlib.import_module(declaration.module)
    except (Exception, SystemExit) as error:
        raise SqlError(
            f"module '{declaration.module}' cannot be imported: {type(error).__name__}: {error}"
        ) from error
    attribute = getattr(module, declaration.attribute, None)
    if attribute is None:
        callables = [name for name, value in vars(module).items() if callable(value)]
        close = nearest(declaration.attribute, callables)
        origin = getattr(module, "__file__", None) or "built in"
        raise SqlError(
            f"module '{declaration.module}' ({origin}) has no function "
            f"'{declaration.attribute}'; {close}"
        )
    compute: Callable[..., Any] = attribute
    return compute


def _read_sources(module: str) -> ModuleSources | None:
    """A module and the modules of its folder that it imports; None for an installed module.

    Installed are the modules of packages and of Python itself. Raises `SqlError` if there is no
    such module, or if the texts are too long.
    """
    importlib.invalidate_caches()
    folder, file = _locate(module)
    installed = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    if file is None or folder is None or folder in map(Path, installed):
        return None
    modules: dict[str, Module] = {}
    pending, in_folder = [module], {_top(module): True}
    while pending:
        name = pending.pop()
        if _top(name) not in in_folder:
            in_folder[_top(name)] = _is_in_folder(folder, _top(name))
        parents = itertools.accumulate(name.split("."), "{}.{}".format)
        for part in parents if in_folder[_top(name)] else ():
            path = _source_file(folder, part)
            if part in modules or path is None:
                continue
            text = _read_text(path)
            modules[part] = Module(part, str(path), text)
            pending += _imports(part, text, path.name == "__init__.py")
    if sum(len(source.text.encode()) for source in modules.values()) > _MOST_BYTES:
        raise SqlError(
            f"module '{module}' and its imports from the same folder exceed {_MOST_BYTES:,} bytes, "
            "which every batch would send; install them as a package"
        )
    return ModuleSources(str(folder), tuple(modules[name] for name in sorted(modules)))


def _is_in_folder(folder: Path, top: str) -> bool:
    """Whether an import of a top-level module finds the one in a folder, and no other."""
    spec = importlib.machinery.PathFinder.find_spec(top)
    if spec is None or top == _PACKAGE or top in sys.stdlib_module_names:
        return False
    return _folder_of(spec, top)[0] == folder


def _locate(module: str) -> tuple[Path | None, Path | None]:
    """The folder of `sys.path` in which a module is found, and its file.

    (None, None) for a built-in module and for one without Python source. Imports no module. Raises
    `SqlError` if there is no such module.
    """
    top = _top(module)
    spec = importlib.machinery.PathFinder.find_spec(top)
    if spec is None:
        if top in sys.builtin_module_names:
            return None, None
        raise SqlError(
            f"there is no Python module '{module}'; put {top}.py next to the script, or name "
            "its folder in PYTHONPATH"
        )
    return _folder_of(spec, module)


def _folder_of(
    spec: importlib.machinery.ModuleSpec, module: str
) -> tuple[Path | None, Path | None]:
    """The folder that holds a top-level module, and the file of that module or of one below it."""
    origins = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    for origin in origins:
        file = Path(origin)
        folder = file.parent.parent if file.name == "__init__.py" else file.parent
        module_file = _source_file(folder, module)
        if module_file is not None:
            return folder.absolute(), module_file
    return None, None


def _source_file(folder: Path, module: str) -> Path | None:
    """The source file of a module below a folder; None if there is none."""
    path = folder.joinpath(*module.split("."))
    for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
        if file.is_file():
            return file
    return None


def _read_text(path: Path) -> str:
    try:
        return importlib.util.decode_source(path.read_bytes())
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise SqlError(f"module {path} cannot be read: {error}") from None


def _top(module: str) -> str:
    return module.partition(".")[0]


def _imports(module: str, text: str, is_package: bool) -> Iterator[str]:
    """Yields the names of all modules that a text may import, also within functions."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        # The import itself raises it, with its line.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")
            package = package[: len(package) - node.level + is_package] if node.level else []
            parts = [*package, *filter(None, [node.module])]
            if parts:
                yield ".".join(parts)
            yield from (".".join([*parts, alias.name]) for alias in node.names)
