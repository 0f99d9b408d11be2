"""The schemas of what tasks return, as Spark's DDL; imports no Arrow, unlike `task_results`."""

from __future__ import annotations

RESULT_DDL = "table STRING, message BINARY, rows BINARY, rows_file STRING, report STRING"
"""Commit messages of tables, and one report; see `task_results.RESULT`."""
BLOCKS_DDL = f"task INT, first_row BIGINT, block BINARY, task_report STRING, {RESULT_DDL}"
"""What read tasks of a shuffle return; see `shuffle.blocks.BLOCKS`."""
