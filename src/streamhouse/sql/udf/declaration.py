"""The names of Python functions that a script has declared, before any module is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias


@dataclass(frozen=True)
class Declaration:
    """A declared Python function: its `name` in lower case; `target` is `module.function`."""

    name: str
    target: str

    @property
    def module(self) -> str:
        return self.target.rpartition(".")[0]

    @property
    def attribute(self) -> str:
        return self.target.rpartition(".")[2]


Declarations: TypeAlias = Mapping[str, Declaration]
"""Declarations by name in lower case: as in Flink, case does not matter for functions."""

NONE: Declarations = MappingProxyType({})
