"""The choice of failed runs to start again, and of their resources: each kind of failure has its own remedy."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid.engine.states.blame import ALONE, MEGABYTE, Memory, culprits
from grid.engine.states.job_logs import log_of, log_path
from grid.engine.states.record_values import own_element
from grid.engine.states.run_files import RunFolder
from grid.engine.states.triage import KINDS, Failure, classify, says_out_of_memory
from nuq.settings import unknown
from settings.resources import Resources, megabytes, seconds, time_text

if TYPE_CHECKING:
    from grid.engine.slurm.site import Site
    from grid.engine.states.evidence import View
    from grid.engine.states.runs import Run
    from grid.engine.states.state import State
    from grid.engine.submission.planning import Made

FAILED = {"failed", "diverged", "lost"}
STUBBORN = {"code", "settings", "cuda_oom", "non_finite"}  # these kinds fail again, unless somebody changes something
NO_FAILURES = {"preempted", "cancelled"}  # plan and submit start them again
SPACE = {"disk"}  # somebody has to make room first


@dataclass(frozen=True)
class Remedy:
    """The changed resources of a run that is started again after one kind of failure."""

    changes: Mapping[str, Any]
    words: str


def failures_of(runs: Sequence[Run], view: View, root: Path) -> dict[str, Failure]:
    """The failures of the runs that failed, by run folder."""
    found = {}
    failed = [run for run in runs if view.states[run.run_dir].word in FAILED]
    memories = _memories([run.run_dir for run in failed], view, root)
    for run in failed:
        log = log_of(view.submissions, run.run_dir, root)  # SLURM's own notices are there
        memory = memories.get(run.run_dir, ALONE)
        found[run.run_dir] = classify(
            run.folder, view.states[run.run_dir], view.jobs.get(run.run_dir), [log] if log else [], memory
        )
    return found


def _memories(failed: Sequence[str], view: View, root: Path) -> dict[str, Memory]:
    """The known memory use of these runs, and of those that shared their jobs, which may have taken it from them."""
    states = {**view.others, **view.states}
    elements = {states[run].element for run in failed}
    found = {}
    for item in view.submissions:
        for chunk in item.chunks:
            for index, mates in chunk.indexed():
                element = f"{chunk.job_id}_{index}"
                if element not in elements:
                    continue
                share = MEGABYTE * megabytes(Resources(**chunk.resources).mem)
                own = {
                    run: Memory(states[run].memory_bytes, share)
                    for run in mates
                    if run in states and states[run].element == element
                }
                log = log_path(item, chunk, index, root)
                is_told = any(
                    run in view.jobs and view.jobs[run].word == "OUT_OF_MEMORY" for run in own
                ) or says_out_of_memory(log)
                blamed = (
                    culprits({run: own[run] for run in own if _was_killed(run, states[run], root)})
                    if is_told and len(own) > 1
                    else ()
                )
                names = {Path(run).name for run in blamed}
                found |= {run: replace(memory, culprits=names) for run, memory in own.items()}
    return found


def _was_killed(run: str, state: State, root: Path) -> bool:
    """Whether the run had begun in its job, and was ended there without a word of its own.

    A word that only says that a rank of it is gone does not count.
    """
    record = RunFolder(root / run).record()
    if state.word not in FAILED or not isinstance(record, Mapping) or own_element(record) != state.element:
        return False
    return record.get("state") == "running" or classify(RunFolder(root / run), state).kind == "network_timeout"


def choose(
    made: Made, root: Path, *, kinds: Sequence[str] = (), with_code: bool = False, factor: float = 2.0
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The resources of each run that is to be started again, by run folder, and one line per kind of failure.

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
        if not made.view.states[run].may_start:
            words[failure.kind, "left alone for now: it may be alive, or its job may start it again"] += 1
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
    """The resources that the run was last submitted with, else those that it would be submitted with."""
    for item in reversed(made.view.submissions):
        for chunk in item.chunks:
            if chunk.is_settled and run in chunk.runs:
                return Resources(**chunk.resources)
    return made.resources[run]


def remedy_for(kind: str, resources: Resources, site: Site, *, factor: float, node: str = "") -> Remedy:
    """The remedy for a kind of failure.

    It is more time after a time limit, more memory after the host ran out of it, other nodes after one failed; else the
    same again.
    """
    before = {"time": resources.time, "mem": resources.mem, "exclude": resources.exclude}
    kept = {name: value for name, value in before.items() if value is not None}
    partition = site.partitions.get(resources.partition or site.partition or "")
    if kind == "time_limit" and resources.time is not None:
        most = seconds(partition.max_time) if partition and partition.max_time else math.inf
        wanted = min(math.ceil(seconds(resources.time) * factor), most)
        return Remedy(
            {**kept, "time": time_text(int(wanted))}, f"again with {time_text(int(wanted))} instead of {resources.time}"
        )
    if kind == "host_oom" and megabytes(resources.mem) > 0:
        most = megabytes(partition.mem) if partition and partition.mem else math.inf
        wanted = min(math.ceil(megabytes(resources.mem) * factor), most)
        return Remedy({**kept, "mem": f"{int(wanted)}M"}, f"again with {int(wanted)} MB instead of {resources.mem}")
    if kind == "node_failure" and node:
        nodes = ",".join(dict.fromkeys([*(resources.exclude or "").split(","), node])).strip(",")
        return Remedy({**kept, "exclude": nodes}, f"again without {node}")
    return Remedy(kept, "again as it was")
