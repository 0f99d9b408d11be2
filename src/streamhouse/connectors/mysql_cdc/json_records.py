"""Dataclasses and named tuples as JSON values, by the types of their fields.

A dataclass becomes an object without the fields that have their default values, a named tuple, a
tuple and a set become lists. Fields of other types must be JSON values themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


def to_json(value: Any) -> Any:
    """The JSON value of a record, or of a container of records."""
    if is_dataclass(value):
        kind: Any = type(value)
        return {
            name: item if is_plain else to_json(item)
            for name, default, is_plain in _fields(kind)
            if (item := getattr(value, name)) != default
        }
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(value)
    return [to_json(item) for item in value] if isinstance(value, tuple | list) else value


def from_json(kind: type[_T], parsed: Any) -> _T:
    """The value of a type for which `to_json` has returned `parsed`; ignores further keys."""
    hashable: Any = kind
    read = _reader(hashable)
    value: _T = parsed if read is None else read(parsed)
    return value


@functools.cache
def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """The fields of a dataclass: the default value, and whether values are JSON values."""
    hints = get_type_hints(kind)
    return [
        (
            one.name,
            one.default if one.default_factory is MISSING else one.default_factory(),
            _reader(hints[one.name]) is None and hints[one.name] is not Any,
        )
        for one in fields(kind)
    ]


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """Makes a value of a type from its JSON value; None if that is the value."""
    origin, arguments = get_origin(kind), get_args(kind)
    if NoneType in arguments:
        (inner,) = (one for one in arguments if one is not NoneType)
        read = _reader(inner)
        return read and (lambda parsed: None if parsed is None else read(parsed))
    if is_dataclass(kind):
        return _record_reader(kind)
    if origin is frozenset:
        return frozenset
    if origin is tuple and arguments[-1] is ...:
        each = _reader(arguments[0])
        return (lambda parsed: tuple(map(each, parsed))) if each is not None else tuple
    if origin is not None and issubclass(origin, Mapping):
        item = _reader(arguments[1])
        return item and (lambda parsed: {key: item(value) for key, value in parsed.items()})
    if origin is tuple:
        return _tuple_reader(tuple, arguments)
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = get_type_hints(kind)
        return _tuple_reader(lambda items: kind(*items), [hints[name] for name in kind._fields])  # type: ignore[attr-defined]
    return None


def _tuple_reader(make: Callable[[Any], Any], kinds: Any) -> Callable[[Any], Any]:
    reads = [_reader(kind) for kind in kinds]

    def read_tuple(parsed: Any) -> Any:
        pairs = zip(reads, parsed, strict=False)
        return make([item if read is None else read(item) for read, item in pairs])

    return read_tuple


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    reads = [(one.name, _reader(hints[one.name])) for one in fields(kind)]

    def read_record(parsed: Any) -> Any:
        return kind(**{
            name: parsed[name] if read is None else read(parsed[name])
            for name, read in reads
            if name in parsed
        })  # fmt: skip

    return read_record
