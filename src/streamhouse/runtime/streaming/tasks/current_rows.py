"""The order of a batch's changes if keys of the target can move between keys of the source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.source import ROW_KIND

_PLACE = "_place"


def current_rows_last(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The changes of a batch with the rows that are current at its end after all others.

    `key` is the source's primary key. A row is current if it is a `+I` or `+U`, and no later change
    has its key. Both parts keep their order, so each row still precedes its retraction, and each
    retraction precedes every row that takes over its key of the target.
    """
    kinds = changes.column(ROW_KIND)
    if not pc.any(pc.is_in(kinds, value_set=pa.array(["-U", "-D"]))).as_py():
        return changes
    places = pa.array(np.arange(changes.num_rows))
    keys = changes.select(list(key)).append_column(_PLACE, places)
    last = keys.group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    current = np.zeros(changes.num_rows, bool)
    current[last.to_numpy()] = True
    current &= pc.is_in(kinds, value_set=pa.array(["+I", "+U"])).to_numpy()
    return changes.take(pa.array(np.argsort(current, kind="stable")))
