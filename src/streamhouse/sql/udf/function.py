"""Python functions: declared by a script, and as a plan holds them, with types and source text."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

PREFIX = "python_"


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


@dataclass(frozen=True)
class Module:
    """A module's source text; `path` is the file that it was read from."""

    name: str
    path: str
    text: str

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


@dataclass(frozen=True)
class ModuleSources:
    """A function's module and the modules of the same folder that it imports."""

    folder: str
    modules: tuple[Module, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the modules' names and texts, which does not depend on the folder."""
        texts = sorted((module.name, module.text) for module in self.modules)
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


@dataclass(frozen=True)
class ValueType:
    """The type of a parameter or of the result; `nullable`: a Python value may be None."""

    type: str
    nullable: bool = True


@dataclass(frozen=True)
class Signature:
    """A function's types; `arrays`: it takes and returns Arrow arrays, else one row's values."""

    parameters: tuple[ValueType, ...]
    result: ValueType
    arrays: bool


@dataclass(frozen=True)
class PythonFunction:
    """A declared function whose module has been read.

    `digest` is that of its sources; empty for a module of an installed package, which every machine
    must have. Plans carry the `sources`; the lineage stores everything else.
    """

    name: str
    target: str
    signature: Signature
    digest: str
    sources: ModuleSources | None = field(default=None, compare=False, repr=False)

    @cached_property
    def engine_name(self) -> str:
        """The function's name in DuckDB, with a hash of its target, types and sources."""
        parts = json.dumps([self.target, asdict(self.signature), self.digest])
        return f"{PREFIX}{self.name}_{hashlib.sha256(parts.encode()).hexdigest()[:12]}"

    def record(self) -> dict[str, Any]:
        """The function as a JSON object, without its sources."""
        record = {key: getattr(self, key) for key in ("name", "target", "digest")}
        return {**record, "signature": asdict(self.signature)}
