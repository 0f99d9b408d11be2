"""Defines and registers procedures: Python functions that can also be called from SQL."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, get_args

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import boolean
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.procedures.context import Context
from streamhouse.sql.syntax import Argument, ArgumentValue

P = ParamSpec("P")

WarehouseSource: TypeAlias = Context | Warehouse | str | Mapping[str, str]
"""A warehouse: itself, its folder or URI, its catalog options, or an open `Context`."""

Options: TypeAlias = Mapping[str, str] | str
"""Table options: a mapping, or `key=value,key=value` as in Paimon's own procedures."""

_KINDS = {Mapping[str, str]: "OPTIONS", str: "STRING", int: "BIGINT", bool: "BOOLEAN"}


@dataclass(frozen=True)
class Parameter:
    """An argument of a procedure; `kind` is STRING, BIGINT, BOOLEAN or OPTIONS."""

    name: str
    kind: str
    required: bool

    @classmethod
    def of(cls, declared: inspect.Parameter) -> Self:
        types = (declared.annotation, *get_args(declared.annotation))
        kind = next(kind for type_, kind in _KINDS.items() if type_ in types)
        return cls(declared.name, kind, declared.default is inspect.Parameter.empty)


class Procedure(Generic[P]):
    """A procedure: called from Python as `procedure(warehouse, …)`, from SQL by `run`.

    Returns its rows as an Arrow table.
    """

    def __init__(
        self, function: Callable[Concatenate[Context, P], pa.Table], aliases: Mapping[str, str]
    ) -> None:
        self._function = function
        self._aliases = {_plain(alias): name for alias, name in aliases.items()}
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.parameters = tuple(
            Parameter.of(declared)
            for declared in list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        )

    def __call__(self, source: WarehouseSource, /, *args: P.args, **kwargs: P.kwargs) -> pa.Table:
        with nullcontext(source) if isinstance(source, Context) else Context(source) as context:
            return self._function(context, *args, **kwargs)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return inspect.cleandoc(self.__doc__ or "").splitlines()[0]

    def bind(self, arguments: Sequence[Argument]) -> dict[str, ArgumentValue]:
        """Bind the arguments of a CALL to the function's parameters, converted to their types.

        Names match in any case, with or without underscores. Raises `OptionError` for an unknown
        argument, with the most similar name, and for a missing one. An empty string stands for an
        argument that is not given, as in Flink.
        """
        bound: dict[str, ArgumentValue] = {}
        for position, argument in enumerate(arguments):
            parameter = self._parameter(position, argument)
            if parameter.name in bound:
                raise OptionError(f"sys.{self.name}: argument '{parameter.name}' is given twice")
            bound[parameter.name] = self._converted(parameter, argument.value)
        given: dict[str, ArgumentValue] = {
            name: value for name, value in bound.items() if value is not None
        }
        for parameter in self.parameters:
            if parameter.required and parameter.name not in given:
                raise OptionError(
                    f"sys.{self.name}: argument '{parameter.name}' is missing; arguments: "
                    f"{self.signature}"
                )
        return given

    @property
    def signature(self) -> str:
        """Its arguments; optional ones in brackets."""
        return ", ".join(
            parameter.name if parameter.required else f"[{parameter.name}]"
            for parameter in self.parameters
        )

    def _parameter(self, position: int, argument: Argument) -> Parameter:
        if argument.name is None:
            if position >= len(self.parameters):
                raise OptionError(
                    f"sys.{self.name} takes at most {len(self.parameters)} arguments: "
                    f"{self.signature}"
                )
            return self.parameters[position]
        plain = _plain(argument.name)
        name = self._aliases.get(plain)
        for parameter in self.parameters:
            if name == parameter.name or _plain(parameter.name) == plain:
                return parameter
        close = nearest(argument.name, [parameter.name for parameter in self.parameters])
        raise OptionError(f"sys.{self.name}: unknown argument '{argument.name}'; {close}")

    def _converted(self, parameter: Parameter, value: ArgumentValue) -> ArgumentValue:
        where = f"sys.{self.name}: argument '{parameter.name}'"
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if parameter.kind == "OPTIONS":
            if isinstance(value, Mapping | str):
                return value
            raise OptionError(f"{where} takes 'key=value,key=value'")
        if isinstance(value, Mapping | tuple):
            raise OptionError(f"{where} takes one {parameter.kind}")
        if parameter.kind == "BOOLEAN":
            return boolean(f"{self.name}.{parameter.name}", str(value))
        if parameter.kind == "BIGINT":
            text = str(value).strip()
            if isinstance(value, bool) or not text.removeprefix("-").isdigit():
                raise OptionError(f"{where}: {value!r} is not a whole number")
            return int(text)
        return str(value)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


PROCEDURES: dict[str, Procedure[...]] = {}
"""All procedures by name."""
ALIASES: dict[str, str] = {}
"""Further names of procedures, such as `rollback`, and the names that they stand for."""


def procedure(
    *aliases: str, **argument_aliases: str
) -> Callable[[Callable[Concatenate[Context, P], pa.Table]], Procedure[P]]:
    """Register a function as a procedure, with further names for it and for its arguments."""

    def register(function: Callable[Concatenate[Context, P], pa.Table]) -> Procedure[P]:
        registered = Procedure(function, argument_aliases)
        PROCEDURES[registered.name] = registered
        ALIASES.update(dict.fromkeys(aliases, registered.name))
        return registered

    return register


def find(name: str) -> Procedure[...]:
    """The procedure of a name; `OptionError` with the most similar name if there is none."""
    lowered = name.lower()
    match = PROCEDURES.get(ALIASES.get(lowered, lowered))
    if match is None:
        raise OptionError(
            f"there is no procedure 'sys.{name}'; {nearest(lowered, [*PROCEDURES, *ALIASES])}"
        )
    return match


_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}


def rows(columns: Mapping[str, type], values: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of named columns, each of type str, int, float or bool; any value may be None."""
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    arrays = [
        pa.array([row[place] for row in values], field.type) for place, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def row(**values: Any) -> pa.Table:
    """One row; the columns' types are those of the values, text for None."""
    kinds = {name: str if value is None else type(value) for name, value in values.items()}
    return rows(kinds, [list(values.values())])


def listed() -> pa.Table:
    """All procedures: `procedure`, `arguments` (optional ones in brackets), `what` it does."""
    return rows(
        {"procedure": str, "arguments": str, "what": str},
        [
            (name, procedure.signature, procedure.summary)
            for name, procedure in sorted(PROCEDURES.items())
        ],
    )


def run(
    context: Context,
    procedure: str,
    arguments: Sequence[Argument],
    qualified: Callable[[str], str] = str,
) -> pa.Table:
    """Run `CALL sys.procedure(arguments)` and return its rows; `OptionError` for an unknown name.

    `qualified` resolves the name of a table, as written, to `database.table`.
    """
    found = find(procedure)
    values: dict[str, Any] = found.bind(arguments)
    table = values.get("table")
    if isinstance(table, str) and not table.endswith(".*"):
        values["table"] = qualified(table)
    return found(context, **values)
