"""Dataclasses and named tuples as JSON values, by the types of their fields.

A dataclass becomes an object without the fields that have their default values, a named tuple, a
tuple and a set become lists.
"""

import functools
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import PlainSerializer, TypeAdapter

_T = TypeVar("_T")

Names: TypeAlias = Annotated[frozenset[str], PlainSerializer(sorted)]
"""A set of names, which always has the same JSON value."""
_adapter: Any = functools.cache(TypeAdapter)


def to_json(value: Any) -> Any:
    """The JSON value of a record."""
    return _adapter(type(value)).dump_python(value, mode="json", exclude_defaults=True)


def from_json(kind: type[_T], parsed: Any) -> _T:
    """The record of a type for which `to_json` has returned `parsed`; ignores further keys."""
    record: _T = _adapter(kind).validate_python(parsed)
    return record
