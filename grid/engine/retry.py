"""Which failed runs to start again, and with what: each kind of failure has its own remedy."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid.engine.resources import Resources, megabytes, seconds, time_text
from grid.engine.submission import log_of
from grid.engine.triage import KINDS, Failure, classify
from nuq.settings import unknown

if TYPE_CHECKING:
    from grid.engine.evidence import View
    from grid.engine.planning import Made
    from grid.engine.runs import Run
    from grid.engine.site import Site

FAILED = {"failed", "diverged"}
STUBBORN = {"code", "settings", "cuda_oom", "non_finite"}  # the same again, unless somebody changes something
NO_FAILURES = {"preempted", "cancelled"}  # plan and submit start them again
SPACE = {"disk"}  # somebody has to make room first


@dataclass(frozen=True)
class Remedy:
    """What a run gets that is started again after one kind of failure."""

    changes: Mapping[str, Any]
    words: str


def failures_of(runs: Sequence[Run], view: View, root: Path) -> dict[str, Failure]:
    """Run folder -> what went wrong, of the runs that failed."""
    found = {}
    for run in runs:
        if view.states[run.run_dir].word in FAILED:
            log = log_of(view.submissions, run.run_dir, root)  # SLURM's own notices are there
            found[run.run_dir] = classify(run.folder, view.states[run.run_dir], view.jobs.get(run.run_dir), [log] if log else [])
    return found


def choose(
    made: Made, root: Path, *, kinds: Sequence[str] = (), with_code: bool = False, factor: float = 2.0
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """(run folder -> its resources, one line per kind of failure) of what is to be started again.

    A run asks for what it was submitted with, but for its failure's remedy and what the command line says now.

    ``kinds`` restricts to these; what fails again by itself is chosen only ``with_code`` or by its kind.
    """
    for kind in kinds:
        if kind in NO_FAILURES:
            raise ValueError(f"--kind {kind}: such runs have not failed; `plan` and `submit` start them again")
        if kind not in KINDS:
            raise unknown("kind of failure", kind, sorted(set(KINDS) - NO_FAILURES))
    if not factor > 1:
        raise ValueError(f"--factor {factor:g}: must be above 1")
    chosen: dict[str, Mapping[str, Any]] = {}
    words: Counter[tuple[str, str]] = Counter()
    for run, failure in failures_of(made.runs, made.view, root).items():
        if kinds and failure.kind not in kinds:
            continue
        if failure.kind in STUBBORN and not (with_code or failure.kind in kinds):
            words[failure.kind, "left alone: it would fail again (--code starts it all the same)"] += 1
            continue
        if failure.kind in SPACE and failure.kind not in kinds:
            words[failure.kind, "left alone: make room first, then --kind disk"] += 1
            continue
        node = made.view.jobs[run].node if run in made.view.jobs else ""
        before = asked(made, run)
        remedy = remedy_for(failure.kind, before, made.site, factor=factor, node=node)
        kept = {name: value for name, value in dataclasses.asdict(before).items() if value is not None}
        chosen[run] = {**kept, **remedy.changes, **made.options.resources}  # the command line's word comes first
        words[failure.kind, remedy.words] += 1
    return chosen, [f"{number} {kind}: {text}" for (kind, text), number in sorted(words.items())]


def asked(made: Made, run: str) -> Resources:
    """What the run was last submitted with, else what it would be submitted with."""
    for item in reversed(made.view.submissions):
        for chunk in item.chunks:
            if chunk.is_settled and any(run in runs for runs in chunk.elements):
                return Resources(**chunk.resources)
    return made.resources[run]


def remedy_for(kind: str, resources: Resources, site: Site, *, factor: float, node: str = "") -> Remedy:
    """More time after a time limit, more memory after the host ran out of it, other nodes after one failed; else the same again."""
    before = {"time": resources.time, "mem": resources.mem, "exclude": resources.exclude}
    kept = {name: value for name, value in before.items() if value is not None}
    partition = site.partitions.get(resources.partition or site.partition or "")
    if kind == "time_limit" and resources.time is not None:
        most = seconds(partition.max_time) if partition and partition.max_time else math.inf
        wanted = min(math.ceil(seconds(resources.time) * factor), most)
        return Remedy({**kept, "time": time_text(int(wanted))}, f"again with {time_text(int(wanted))} instead of {resources.time}")
    if kind == "host_oom" and megabytes(resources.mem) > 0:
        most = megabytes(partition.mem) if partition and partition.mem else math.inf
        wanted = min(math.ceil(megabytes(resources.mem) * factor), most)
        return Remedy({**kept, "mem": f"{int(wanted)}M"}, f"again with {int(wanted)} MB instead of {resources.mem}")
    if kind == "node_failure" and node:
        nodes = ",".join(dict.fromkeys([*(resources.exclude or "").split(","), node])).strip(",")
        return Remedy({**kept, "exclude": nodes}, f"again without {node}")
    return Remedy(kept, "again as it was")
