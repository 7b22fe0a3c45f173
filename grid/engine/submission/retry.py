"""The choice of failed runs to start again, and of their resources: each kind of failure has its own remedy."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid.engine.slurm.site import Partition, Site
from grid.engine.states.blame import ALONE, MEGABYTE, Memory, culprits
from grid.engine.states.job_logs import log_of, log_path
from grid.engine.states.record_values import own_element
from grid.engine.states.run_files import RunFolder
from grid.engine.states.triage import KINDS, Failure, classify, says_out_of_memory
from nuq.settings import unknown
from settings.resources import TIME_FORMS, Resources, megabytes, seconds, time_text

if TYPE_CHECKING:
    from grid.engine.states.evidence import View
    from grid.engine.states.runs import Run
    from grid.engine.states.state import State
    from grid.engine.submission.planning import Made

STOPPED = {"preempted", "checkpointed"}  # these go on from their checkpoints
FAILED = {"failed", "diverged", "lost", *STOPPED}
STUBBORN = {"code", "settings", "cuda_oom", "non_finite"}  # these kinds fail again, unless somebody changes something
NO_FAILURES = {"cancelled"}  # plan and submit start them again
SPACE = {"disk"}  # somebody has to make room first
GROWS = {"time_limit": "time", "host_oom": "mem"}  # the resource of which a run gets more after such a failure


@dataclass(frozen=True)
class Bounds:
    """The bounds within which ``retry --auto`` starts failed runs again, for one experiment."""

    max_time: str | None = None  # None, here and below: what the site's profile says of the partition
    max_mem: str | None = None
    max_attempts: int = 4  # submissions of one run, the first one counted; of twice as much each: eight times the first

    def __post_init__(self) -> None:
        if self.max_time is not None and not _above_0(seconds, self.max_time):
            raise ValueError(f"--max_time {self.max_time}: must be a time above 0: {TIME_FORMS}")
        if self.max_mem is not None and not _above_0(megabytes, self.max_mem):
            raise ValueError(f"--max_mem {self.max_mem}: must be an amount of memory above 0: 64G, 500M, 1T")
        if self.max_attempts < 2:
            raise ValueError(f"--max_attempts {self.max_attempts}: must be at least 2, for the first start counts")

    def check(self, made: Made) -> None:
        """Raise ValueError where a run of the sweep has no bound."""
        for resources in dict.fromkeys(made.resources.values()):
            name = resources.partition or made.site.partition
            where = f"of partition {name} in the site's profile" if name else "of a partition in the site's profile"
            limits = _limits(resources, made.site)
            if self.max_time is None and limits.max_time is None:
                raise ValueError(f"--auto: time has no bound: give --max_time 1-00:00:00, or max_time {where}")
            if self.max_mem is None and limits.mem is None:
                raise ValueError(f"--auto: memory has no bound: give --max_mem 64G, or mem {where}")


def _above_0(parse: Callable[[str], int], text: str) -> bool:
    try:
        return parse(text) > 0
    except ValueError:
        return False


def _limits(resources: Resources, site: Site) -> Partition:
    """What the site's profile says of the partition that these resources are asked of."""
    return site.partitions.get(resources.partition or site.partition or "", Partition())


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
    made: Made,
    root: Path,
    *,
    kinds: Sequence[str] = (),
    with_code: bool = False,
    factor: float = 2.0,
    bounds: Bounds | None = None,
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The resources of each run that is to be started again, by run folder, and one line per kind of failure.

    A run asks for what it was submitted with, but for its failure's remedy and what the command line says now.

    ``kinds`` restricts to these; what fails again by itself is chosen only ``with_code`` or by its kind.  With
    ``bounds``, runs that have had all that these allow are left alone.
    """
    for kind in kinds:
        if kind in NO_FAILURES:
            raise ValueError(f"--kind {kind}: such runs have not failed; `plan` and `submit` start them again")
        if kind not in KINDS:
            raise unknown("kind of failure", kind, sorted(set(KINDS) - NO_FAILURES))
    if not factor > 1:
        raise ValueError(f"--factor {factor:g}: must be above 1")
    if bounds is not None:
        if with_code or (STUBBORN | SPACE) & set(kinds):
            raise ValueError(
                "--auto: starts nothing again that fails again by itself: leave out --code, and --kind with one of "
                f"{', '.join(sorted(STUBBORN | SPACE))}"
            )
        bounds.check(made)
    starts = Counter(
        run for item in made.view.submissions for chunk in item.chunks if chunk.is_settled for run in chunk.runs
    )
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
        parallel = made.options.parallel
        remedy = remedy_for(failure.kind, before, made.site, factor=factor, node=node, parallel=parallel, bounds=bounds)
        if bounds is not None and (why := _exhausted(failure.kind, before, remedy, starts[run], bounds)):
            words[failure.kind, f"left alone: {why}"] += 1
            continue
        kept = {name: value for name, value in dataclasses.asdict(before).items() if value is not None}
        chosen[run] = {**kept, **remedy.changes, **made.options.resources}  # the command line's word comes first
        said = _said(failure.kind, before, Resources(**chosen[run])) if made.options.resources else remedy.words
        attempt = f" (attempt {starts[run] + 1} of {bounds.max_attempts})" if bounds is not None else ""
        words[failure.kind, f"{said}{attempt}"] += 1
    return chosen, [f"{number} {kind}: {text}" for (kind, text), number in sorted(words.items())]


def _said(kind: str, before: Resources, after: Resources) -> str:
    """What a run that is started again asks for in another way than before."""
    names = [item.name for item in dataclasses.fields(Resources)]
    moved = [(name, getattr(before, name), getattr(after, name)) for name in names]
    parts = [f"{name}={new} instead of {'none' if old is None else old}" for name, old, new in moved if old != new]
    how = "goes on from its checkpoint" if kind in STOPPED else "again"
    return f"{how} with {', '.join(parts)}" if parts else _same(kind)


def _same(kind: str) -> str:
    return "goes on from its checkpoint" if kind in STOPPED else "again as it was"


def _exhausted(kind: str, before: Resources, remedy: Remedy, starts: int, bounds: Bounds) -> str:
    """The reason why a run has had all that the bounds allow; empty where it has not."""
    if starts >= bounds.max_attempts:
        return f"it was started {starts} times, and --max_attempts is {bounds.max_attempts}"
    if kind not in GROWS:
        return ""
    name = GROWS[kind]
    had, amount = getattr(before, name), seconds if name == "time" else megabytes
    if had is None or not amount(had):
        return f"it asked for no {name} that could grow"
    return "" if amount(remedy.changes[name]) > amount(had) else f"it had {had}, and may have no more"


def asked(made: Made, run: str) -> Resources:
    """The resources that the run was last submitted with, else those that it would be submitted with."""
    for item in reversed(made.view.submissions):
        for chunk in item.chunks:
            if chunk.is_settled and run in chunk.runs:
                return Resources(**chunk.resources)
    return made.resources[run]


def remedy_for(
    kind: str,
    resources: Resources,
    site: Site,
    *,
    factor: float,
    node: str = "",
    parallel: int = 1,
    bounds: Bounds | None = None,
) -> Remedy:
    """The remedy for a kind of failure.

    It is more time after a time limit, more memory after the host ran out of it, other nodes after one failed; else the
    same again.  There is never more than the partition has for a script of ``parallel`` runs at a time, or than
    ``bounds`` allow.
    """
    before = {"time": resources.time, "mem": resources.mem, "exclude": resources.exclude}
    kept = {name: value for name, value in before.items() if value is not None}
    limits, bounds = _limits(resources, site), bounds or Bounds()
    if kind == "time_limit" and resources.time is not None:
        most = [seconds(text) for text in (limits.max_time, bounds.max_time) if text]
        wanted = min([math.ceil(seconds(resources.time) * factor), *most])
        return Remedy(
            {**kept, "time": time_text(wanted)}, f"again with {time_text(wanted)} instead of {resources.time}"
        )
    if kind == "host_oom" and megabytes(resources.mem) > 0:
        most = [megabytes(limits.mem) // parallel] if limits.mem else []
        most += [megabytes(bounds.max_mem)] if bounds.max_mem else []
        wanted = min([math.ceil(megabytes(resources.mem) * factor), *most])
        return Remedy({**kept, "mem": f"{wanted}M"}, f"again with {wanted} MB instead of {resources.mem}")
    if kind == "node_failure" and node:
        nodes = ",".join(dict.fromkeys([*(resources.exclude or "").split(","), node])).strip(",")
        return Remedy({**kept, "exclude": nodes}, f"again without {node}")
    return Remedy(kept, _same(kind))
