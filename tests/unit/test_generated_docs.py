"""Generated docs are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_generated_docs_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "scripts/generate_docs.py")
    assert spec is not None and spec.loader is not None
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)

    assert docs.outdated() == [], "run scripts/generate_docs.py"
