"""Calls of Python functions in a parsed tree: only the declaration of each is known yet."""

from sqlglot import exp

from streamhouse.sql.udf import registry
from streamhouse.sql.udf.function import Declaration, PythonFunction

_DECLARED = "python"


def declared_call(declaration: Declaration, arguments: list[exp.Expr]) -> exp.Expr:
    """The node of a call; its `meta` holds the declaration."""
    node = exp.Anonymous(this=declaration.name, expressions=arguments)
    node.meta[_DECLARED] = declaration
    return node


def declaration_of(node: exp.Expr) -> Declaration | None:
    """The declaration of the function that a node calls; None for any other node."""
    declaration = node.meta.get(_DECLARED) if isinstance(node, exp.Anonymous) else None
    return declaration if isinstance(declaration, Declaration) else None


def declarations_in(tree: exp.Expr) -> list[Declaration]:
    """The functions that a tree calls, each once."""
    declarations = (declaration_of(node) for node in tree.find_all(exp.Anonymous))
    return list(
        dict.fromkeys(declaration for declaration in declarations if declaration is not None)
    )


def functions_in(tree: exp.Expr) -> tuple[PythonFunction, ...]:
    """The defined functions that a tree calls, each once."""
    functions = (registry.defined(declaration) for declaration in declarations_in(tree))
    return tuple(function for function in functions if function is not None)
