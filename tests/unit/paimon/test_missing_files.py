"""Which errors of the Rust core are of missing files."""

from __future__ import annotations

import pytest

from streamhouse.paimon.storage.rust_core import is_gone


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("IO operation failed: NotFound (permanent) at read => entity not found", True),
        ("Object at location a/b/data-1.parquet not found: 404", True),
        ("Object Store error: No such file or directory (os error 2)", True),
        ("Snapshot 7 does not exist", True),
        ("Sequence field 'totl' not found in the schema of the table", False),
        ("invalid config: Field 'g' of option 'fields.g.sequence-group' not found", False),
        ("Column path 'a.b' not found", False),
        ("No field named totl. Column not found", False),
    ],
)
def test_only_a_missing_file_is_gone(text: str, gone: bool) -> None:
    assert is_gone(ValueError(text)) is gone
