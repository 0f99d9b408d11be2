"""Packages stay small enough to be found through, and say what they are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import streamhouse

_ROOT = Path(streamhouse.__file__).parent
_PACKAGES = sorted(path.parent for path in _ROOT.rglob("__init__.py"))
_MOST_MODULES = 15


@pytest.mark.parametrize("package", _PACKAGES, ids=lambda path: str(path.relative_to(_ROOT.parent)))
def test_a_package_has_few_modules_and_a_docstring(package: Path) -> None:
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= _MOST_MODULES, "find the concept in it, and make a sub-package of it"
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
