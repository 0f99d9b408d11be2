"""The list of the Rust core's differences names modules that exist."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
from tests.core_differences import DIFFERENCES, CoreDifference


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda found: found.name)
def test_the_module_of_the_workaround_is_there(difference: CoreDifference) -> None:
    modules = re.findall(r"(?<![\w.])[a-z_]+(?:\.[a-z_]+)+", difference.workaround)

    assert modules
    for module in modules:
        assert find_spec(f"streamhouse.{module}") is not None
