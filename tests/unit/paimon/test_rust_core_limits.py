"""The list of the Rust core's limits names modules that exist."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from streamhouse.paimon.read.rust_core.limits import LIMITS, Limit


@pytest.mark.parametrize("limit", LIMITS, ids=[limit.name for limit in LIMITS])
def test_the_module_of_the_workaround_is_there(limit: Limit) -> None:
    modules = re.findall(r"(?<![\w.])[a-z_]+(?:\.[a-z_]+)+", limit.workaround)

    assert modules
    for module in modules:
        assert find_spec(f"streamhouse.{module}") is not None
