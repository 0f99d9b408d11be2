"""JSON paths as Flink evaluates them (Jayway's JsonPath over Jackson), in strict and lax mode.

Of equal names in an object the last one counts, a number with a fraction is a DOUBLE, and a text
after the JSON value is ignored. A path is a tuple of steps, which return the children of a node.

Also the functions that DuckDB calls for one text: their results, and what ON EMPTY and ON ERROR
give.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeAlias

from streamhouse.sql.functions.java_numbers import java_double

Children: TypeAlias = Callable[[Any], Iterator[Any]]
_MODE = re.compile(r"\s*(lax|strict)\s+(.+)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[^.\[\s(]+")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NAMES = re.compile(rf"\[\s*((?:{_QUOTED})(?:\s*,\s*(?:{_QUOTED}))*)\s*\]", re.DOTALL)
_INDEXES = re.compile(r"\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]")
_SLICE = re.compile(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")
_CONDITION = re.compile(
    rf"""\s*(!?)\s*@((?:\.[\w-]+|\[(?:{_QUOTED}|-?\d+)\])*)\s*
    (?:(==|!=|<=|>=|<|>)\s*(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|{_QUOTED}))?\s*""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class PathError(ValueError):
    """A path that is not valid or not supported, JSON that is not valid, or nothing at the path."""


@dataclass(frozen=True)
class PathStep:
    """The children of a node.

    `definite`: there is at most one. `items`: a node that is no array is an error.
    """

    children: Children
    definite: bool = False
    items: bool = False


@dataclass(frozen=True)
class Path:
    """The steps of a path. `lax` suppresses errors."""

    steps: tuple[PathStep, ...]
    lax: bool

    def value(self, text: str) -> Any:
        """The value at the path, a list if it may match several; `PathError` unless lax."""
        definite = all(step.definite for step in self.steps)
        try:
            document = parsed(text)
        except PathError:
            if self.lax:
                return None
            raise
        if document is None:
            raise PathError("JSON null has no parts")
        try:
            found = self.found(document)
            if not definite:
                return found
            if found and (found[0] is not None or self.lax):
                return found[0]
            raise PathError("nothing at the path")
        except PathError:
            if self.lax:
                return None if definite else []
            raise

    def found(self, document: Any) -> list[Any]:
        """The nodes at the path; `PathError` if a part of it is missing."""
        nodes, definite = [document], True
        for index, step in enumerate(self.steps):
            if definite and step.items and not isinstance(nodes[0], list):
                raise PathError("no array at the path")
            children = [child for node in nodes for child in step.children(node)]
            definite = definite and step.definite
            if definite and not children and index + 1 < len(self.steps):
                raise PathError("nothing at the path")
            nodes = children
        return nodes


_DECODER = json.JSONDecoder(parse_constant=lambda word: _invalid(word))


def _invalid(word: str) -> NoReturn:
    raise PathError(f"'{word}' is not JSON")


def parsed(text: str) -> Any:
    """The value of a JSON text; `PathError` if it is not valid."""
    try:
        return _DECODER.raw_decode(text.lstrip(" \t\r\n"))[0]
    except (ValueError, RecursionError):
        raise PathError("not valid JSON") from None


def written(value: Any) -> str:
    """A value as JSON text."""
    if isinstance(value, dict):
        members = (f"{written(name)}:{written(member)}" for name, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return java_double(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def scalar_text(value: Any) -> str:
    """A string, a number or a boolean as text."""
    if isinstance(value, float):
        return java_double(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=256)
def compiled(text: str) -> Path:
    """The path of a text such as `lax $.a[0]`; strict is the default. `PathError` if invalid."""
    mode = _MODE.fullmatch(text)
    lax = mode is not None and mode[1].lower() == "lax"
    return Path(tuple(_steps((mode[2] if mode else text).strip())), lax)


def _steps(text: str) -> Iterator[PathStep]:
    if not text or text.endswith("."):
        raise PathError(f"'{text}' is not a JSON path")
    if not text.startswith("$"):
        text = f"$.{text}"
    at = 1
    while at < len(text):
        deep = text.startswith("..", at)
        dot = text.startswith(".", at)
        at += 2 if deep else 1 if dot and not text.startswith(".[", at) else 0
        if text.startswith(".", at) and not deep:
            at += 1
        step, at = _bracket(text, at) if text.startswith("[", at) else _named(text, at, dot)
        yield PathStep(partial(_below, step.children)) if deep else step


def _named(text: str, at: int, dot: bool) -> tuple[PathStep, int]:
    name = _NAME.match(text, at)
    if not dot or name is None or text.startswith(("(", " "), name.end()):
        raise PathError(f"'{text[at:]}' in the JSON path '{text}' is not supported")
    step = (
        PathStep(_all) if name[0] == "*" else PathStep(partial(_member, [name[0]]), definite=True)
    )
    return step, name.end()


def _bracket(text: str, at: int) -> tuple[PathStep, int]:
    if match := re.compile(r"\[\s*\*\s*\]").match(text, at):
        return PathStep(_all), match.end()
    if match := _NAMES.match(text, at):
        names = re.findall(_QUOTED, match[1], re.DOTALL)
        members = partial(_member, list(map(_unquoted, names)))
        return PathStep(members, definite=True), match.end()
    if match := _INDEXES.match(text, at):
        indexes = [int(index) for index in match[1].split(",")]
        return PathStep(partial(_items, indexes), len(indexes) == 1, items=True), match.end()
    if match := _SLICE.match(text, at):
        start, end = (int(part) if part else None for part in match.groups())
        return PathStep(lambda node: iter(_array(node)[start:end]), items=True), match.end()
    if text.startswith("[?(", at):
        condition, at = _alternatives(text, at + 3)
        if text.startswith(")]", at):
            return PathStep(partial(_filtered, condition)), at + 2
    raise PathError(f"'{text[at:]}' in the JSON path '{text}' is not supported")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _all(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _member(names: list[str], node: Any) -> Iterator[Any]:
    """The member of a name; for several names an object of those that exist."""
    if isinstance(node, dict):
        if len(names) > 1:
            yield {name: node[name] for name in names if name in node}
        elif names[0] in node:
            yield node[names[0]]


def _array(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _items(indexes: list[int], node: Any) -> Iterator[Any]:
    items = _array(node)
    return (items[index] for index in indexes if -len(items) <= index < len(items))


def _below(children: Children, node: Any) -> Iterator[Any]:
    """The children of a node and of all nodes below it."""
    yield from children(node)
    for child in _all(node):
        yield from _below(children, child)


Condition: TypeAlias = Callable[[Any], bool]


def _filtered(condition: Condition, node: Any) -> Iterator[Any]:
    return filter(condition, [node] if isinstance(node, dict) else _array(node))


def _alternatives(text: str, at: int) -> tuple[Condition, int]:
    """Conditions joined by `&&` and `||`."""
    either: list[list[Condition]] = [[]]
    while True:
        condition, at = _one_condition(text, at)
        either[-1].append(condition)
        if text.startswith("||", at):
            either.append([])
        elif not text.startswith("&&", at):
            return lambda node: any(all(one(node) for one in every) for every in either), at
        at += 2


def _one_condition(text: str, at: int) -> tuple[Condition, int]:
    match = _CONDITION.match(text, at)
    if match is None:
        raise PathError(f"the filter '{text[at:]}' of a JSON path is not supported")
    negated, inner, compare, literal = match.groups()
    path = Path(tuple(_steps(f"${inner}")), lax=False)
    wanted = None if literal is None else _literal(literal)

    def holds(node: Any) -> bool:
        try:
            found = path.found(node)
        except PathError:
            found = []
        if compare is None:
            return bool(found) != bool(negated)
        same = bool(found) and _type_of(found[0]) == _type_of(wanted)
        if compare in ("==", "!="):
            return (same and found[0] == wanted) == (compare == "==")
        return same and wanted is not None and _COMPARE[compare](found[0], wanted)

    return holds, match.end()


def _literal(text: str) -> Any:
    return _unquoted(text) if text[0] in "'\"" else parsed(text)


def _type_of(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def value(text: str | None, path: str | None, empty: str | None, error: str | None) -> str | None:
    """JSON_VALUE. A handler is null, `E` for an error, or `D` and the default."""
    if text is None or path is None:
        return None
    try:
        found = compiled(path).value(text)
    except PathError as failure:
        return _instead(error, f"JSON_VALUE: {failure}")
    if found is None or (compiled(path).lax and not is_scalar(found)):
        return _instead(empty, "JSON_VALUE: nothing at the path")
    if not is_scalar(found):
        return _instead(error, "JSON_VALUE: an object or array at the path")
    return _utf8(scalar_text(found))


def query(text: str, path: str, clauses: str) -> str | None:
    """JSON_QUERY. `clauses` has the wrapper's first letter and the values ON EMPTY and ON ERROR."""
    wrapper, empty, error = clauses.split(",")
    try:
        found = compiled(path).value(text)
    except PathError as failure:
        return _constant(error, f"JSON_QUERY: {failure}")
    if found is None:
        return _constant(empty, "JSON_QUERY: nothing at the path")
    if wrapper == "U" or (wrapper == "C" and not isinstance(found, list)):
        found = [found]
    if is_scalar(found):
        instead = empty if compiled(path).lax else error
        return _constant(instead, "JSON_QUERY: a scalar at the path")
    return _utf8(written(found))


def exists(text: str, path: str, error: str) -> str | None:
    """JSON_EXISTS as `true` or `false`; `error` is the value ON ERROR."""
    try:
        return "false" if compiled(path).value(text) is None else "true"
    except PathError as failure:
        return _constant(error.lower() if len(error) > 1 else error, f"JSON_EXISTS: {failure}")


def kind(text: str) -> str | None:
    """OBJECT, ARRAY or SCALAR; None for a text that is not JSON."""
    try:
        found = parsed(text)
    except PathError:
        return None
    return "OBJECT" if isinstance(found, dict) else "ARRAY" if not is_scalar(found) else "SCALAR"


def length(text: str, path: str) -> int | None:
    """JSON_LENGTH: the number of members or elements, 1 for a scalar, None if there is none."""
    try:
        found: Any = parsed(text) if path == "$" else compiled(path).value(text)
    except PathError:
        return None
    return 1 if is_scalar(found) else len(found)


def _instead(handler: str | None, message: str) -> str | None:
    if handler == "E":
        raise ValueError(message)
    return None if handler is None else handler[1:]


def _constant(handler: str, message: str) -> str | None:
    if handler == "E":
        raise ValueError(message)
    return handler or None


def _utf8(text: str) -> str:
    """A text without half surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
