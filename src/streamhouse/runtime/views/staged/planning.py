"""Which refreshes are staged, and what each of their tasks reads.

The planner decides it for a batch before it begins: the offset has the number of tasks of
each level, under `STAGED`, where the driver finds it, too.
"""

from dataclasses import dataclass, field

from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.operators.trees.drawing import whole_reason
from streamhouse.operators.trees.stages import StagedTree
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.incremental import LARGE_CHANGE, changed_rows, is_committed
from streamhouse.runtime.views.inputs import Splits, ViewInputs
from streamhouse.runtime.views.net_change import is_read_alike
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset

STAGED = "staged"
PARALLEL_ROWS = 500_000
"""From so many rows, several tasks of a cluster recompute a view, unless the script sets it."""
_trees: dict[str, StagedTree] = {}


@dataclass(frozen=True)
class StageInput(TaskInput):
    """What a task of a staged refresh reads of the tables; `count`: of the tasks of its level."""

    level: int
    count: int
    splits: Splits = field(repr=False)


def staged_tree(plan: ViewPlan) -> StagedTree:
    """The stages of a view; a process makes them once."""
    if plan.fingerprint not in _trees:
        _trees[plan.fingerprint] = StagedTree(plan.tree)
    return _trees[plan.fingerprint]


def is_divisible(plan: ViewPlan) -> bool:
    """Whether several tasks can compute a view."""
    return plan.windows is None and not plan.ordered and staged_tree(plan).is_parallel


def task_count(spec: ViewSpec, start: Offset, end: Offset) -> int:
    """By how many tasks of each level a new batch is staged; 0: by none.

    It is staged if it recomputes the view from at least `spec.parallel_rows` rows.
    """
    # Rows that are appended later are those that the result did not have before.
    if spec.parallel_rows is None or spec.parallelism < 2 or (spec.plan.keyless and start):
        return 0
    same, new = start.get("view") == end["view"], end["vector"]
    old = start["vector"] if same else new
    changed, rows = changed_rows(spec, old, new)
    recomputes = spec.strategy == "recompute" or whole_reason(spec.plan.tree)
    large = spec.strategy == "auto" and changed > rows * LARGE_CHANGE
    if rows < spec.parallel_rows or (same and not recomputes and not large):
        return 0
    target = spec.target.planned()
    one_writer = target.primary_key and (target.bucket < 1 or target.crosses_partitions)
    divisible = None not in spec.inputs and is_divisible(spec.plan) and not one_writer
    tables = ((at.open(), at.planned()) for at in spec.tables.values())
    if divisible and all(is_read_alike(new, old, old.arrow_schema.names) for new, old in tables):
        return spec.parallelism
    return 0


def tasks_of(spec: ViewSpec, end: Offset) -> int:
    """By how many tasks of each level a planned batch is staged; 0: by none.

    That is so, too, if it is committed, or a snapshot is gone, for which one task has a rule.
    """
    count = int(end.get(STAGED, 0))
    if not count or not str(end["view"]).startswith(spec.fingerprint):
        return 0
    for key, address in spec.tables.items():
        position = end["vector"][key]
        found = address.open().snapshots.find(int(position["snapshot"]))
        if position["snapshot"] and (found is None or found.time_ms != position["time"]):
            return 0
    done = is_committed(spec.target.open(), spec.query_id, int(end["batch"]), spec.plan.keyless)
    return 0 if done else count


def inputs_of(
    spec: ViewSpec, start: Offset, end: Offset, count: int, level: int
) -> list[StageInput]:
    """What the tasks of a level read: each some splits of each table."""
    inputs, stages = ViewInputs(spec, end), staged_tree(spec.plan).of_level(level)
    relations = {name for stage in stages for name in stage.relations}
    scans = [each for each in spec.plan.query.scans if each.relation in relations]
    splits = {each.relation: inputs.splits(each) for each in scans}
    shares = ({name: each[n::count] for name, each in splits.items()} for n in range(count))
    return [StageInput(n, start, end, level, count, share) for n, share in enumerate(shares)]
