"""Merges many of the rows that a view keeps beside its batches, in a thread of the worker."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import StreamhouseError
from streamhouse.operators.trees.arrangement import Arrangement
from streamhouse.operators.trees.incremental import merge_beside
from streamhouse.runtime.views.inputs import MEMORY, NICENESS, opened_alone
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.state.manifest import Segments
from streamhouse.state.segment import StateError
from streamhouse.state.store import StateStore

log = logging.getLogger("streamhouse.views")


def start_merges(
    spec: ViewSpec, store: StateStore, merges: Sequence[tuple[Segments, Arrangement]]
) -> threading.Thread:
    """Merge segments in a thread. If its process ends first, a later batch starts it again."""

    def work() -> None:
        # On Linux this is the priority of this thread, and of those that it starts.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        limits = Limits(memory=MEMORY)
        try:
            with store.merging() as alone:
                for files, kept in merges if alone else ():
                    with opened_alone(spec, limits, threads=1) as connection:
                        merge_beside(connection, store, files, kept)
        except (StreamhouseError, StateError, OSError) as error:
            log.info("%s: kept rows were not merged: %s", spec.target.identifier, error)

    thread = threading.Thread(target=work, name="merges", daemon=True)
    thread.start()
    return thread
