"""Sentences about a sweep's runs, for `plan` and `status`, and a plan in readable form."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from files.aligned import some
from grid.commands.options import again, count, table, tell_folder

# numbers of jobs, steps, seconds make equal reasons differ; CIFAR-10 is a name
NUMBERS = re.compile(r"(?<![\w.])(?<![A-Z]-)\d[\d_.]*(?!\w)")
TASK = "\0"  # the run's own array task in the words of its group
LONGEST = 60  # characters of a list of array tasks

if TYPE_CHECKING:
    from grid.engine.states.evidence import View
    from grid.engine.states.ledger import Chunk
    from grid.engine.states.state import State
    from grid.engine.submission.planning import Made
    from grid.engine.sweep import Experiment, Sweep


def counted(view: View, word: str) -> str:
    """The reasons of the runs in this state, the most frequent first: ``12 Priority; 3 Resources``.

    Runs of one reason are counted together; of the array tasks that it names all are named.
    """
    groups: dict[str, list[State]] = {}
    for state in view.states.values():
        if state.word == word and state.reason:
            reason = " ".join(state.reason.split())
            parts = reason.split(state.element) if state.element else [reason]
            groups.setdefault(TASK.join(NUMBERS.sub("...", part) for part in parts), []).append(state)
    shown = []
    for text, states in sorted(groups.items(), key=lambda group: -len(group[1]))[:3]:
        told = text.replace(TASK, _tasks({state.element for state in states})) if TASK in text else text
        shown.append(f"{len(states)} {told}" if len(groups) > 1 or len(states) > 1 else told)
    return "; ".join(shown) + (f"; {len(groups) - 3} other reasons" if len(groups) > 3 else "")


def _tasks(elements: Collection[str]) -> str:
    """Array tasks as SLURM's commands take them; the first ones where that is long."""
    from grid.engine.slurm.elements import compact

    ordered = sorted(elements, key=lambda name: [int(part) for part in name.split("_")])
    text = re.sub(r"_\[(\d+)\]", r"_\1", ",".join(compact(ordered)))
    return text if len(text) <= LONGEST else some(ordered)


def changes(made: Made, root: Path) -> Iterator[str]:
    """Sentences on what became of earlier runs: defaults that moved, experiments that left the sweep."""
    from grid.engine.states.runs import left_over, other_seeds, read_config, runs_of
    from grid.engine.submission.plan import moved_defaults
    from grid.engine.submission.pruning import of_others

    experiments = [run.experiment for run in made.runs]
    every = [*experiments, *other_seeds(made.sweep, experiments, root)]
    folders = left_over(every, root)
    with contextlib.suppress(ValueError):  # prune says why
        further = of_others(made.sweep, root)
        folders = [folder for folder in folders if folder.name not in further]
    configs = {folder.name: config for folder in folders if (config := read_config(folder)) is not None}
    moved, gone = moved_defaults(runs_of(every, root), configs)
    for item in moved:
        runs = f"{count(len(item.runs), 'earlier run')} ({some(item.runs)})"
        if item.name == "plugins":
            was, now = (", ".join(versions) or "none" for versions in (item.old, item.new))
            yield f"changed: plug-ins were {was} and are {now}: {runs} no longer count; installing the old keeps them"
            continue
        print_old = f"--set {item.name}={item.old}" if "(" not in str(item.old) else "the code of then"
        yield (
            f"changed: the default {item.name} moved from {item.old} to {item.new}: {runs} no longer count; "
            f"{print_old} keeps them"
        )
    if titles := sorted({item.title for item in made.view.submissions} - {made.plan.title}):
        others = ", ".join(titles)
        yield (
            f"runs/{made.plan.folder} also holds what {others} submitted: give one of them its own folder, "
            f"Sweep(..., folder=...)"
        )
    yield from of_other_seeds(made.sweep, experiments, root)
    if gone:
        yield f"no longer in the sweep: {count(len(gone), 'run folder')} ({some(gone)})"
    if unreadable := len(folders) - len(configs):
        yield f"unreadable: the config.yaml of {count(unreadable, 'run folder')}"


def unmeasured(experiments: Sequence[Experiment]) -> Iterator[str]:
    """A sentence where no run of the sweep will log what figures of the variance are drawn of."""
    if not any(item.config["measure"]["every"] for item in experiments):
        yield "no variance is logged, as measure.every is 0 in all runs (figures of it need measure.every=N)"


def of_other_seeds(sweep: Sweep, experiments: Sequence[Experiment], root: Path) -> Iterator[str]:
    """A sentence on the runs of a sweep that ``run --seeds`` started with other seeds than those of ``experiments``."""
    from grid.engine.states.runs import other_seeds, runs_of
    from grid.engine.sweeps.families import seeds_text

    runs = runs_of(other_seeds(sweep, experiments, root), root)
    if seeds := [run.experiment.seed for run in runs if run.folder.config.exists()]:
        distinct = [str(seed) for seed in sorted(set(seeds))]
        of = f"seed{'s' * (len(distinct) > 1)} {some(distinct)} {'is' if len(seeds) == 1 else 'are'}"
        every = seeds_text([*(item.seed for item in experiments), *seeds])
        yield f"{count(len(seeds), 'run')} of {of} of this sweep, too: --seeds {every} shows all"


def drifted(made: Made, root: Path) -> Iterator[str]:
    """Runs in the queue whose snapshot differs from the tree as it is."""
    from grid.engine.scripts import snapshot

    waiting: Counter[tuple[str, str]] = Counter()
    alive = {state.element for state in made.view.states.values() if state.word in ("pending", "running")}
    for item in made.view.submissions:
        for chunk in item.chunks:
            number = sum(1 for index, runs in chunk.indexed() if f"{chunk.job_id}_{index}" in alive for _ in runs)
            if number and item.code["digest"] != made.plan.code["digest"]:
                waiting[item.code["digest"], item.code["commit"]] += number
    for (digest, commit), number in waiting.items():
        word = f" of commit {commit[:10]}" if commit else ""
        said = f"code drift: {count(number, 'run')} in the queue execute snapshot {digest[:12]}{word}"
        try:
            yield f"{said}; since then changed: {some(snapshot.drift(root, digest)) or 'only how it is kept'}"
        except ValueError as error:  # without it they will fail, and can be started again
            yield f"{said}, and that is damaged: {error}"


def hours(made: Made) -> Iterator[str]:
    """A sentence on the time that the unfinished runs will still take, learned from their finished siblings."""
    from grid.engine.submission.plan import remaining

    left = remaining(made.runs, made.view.states, made.resources)
    unknown = f"; unknown for {count(left.num_guessed, 'run')} without a finished sibling" if left.num_guessed else ""
    if left.seconds:
        yield (
            f"left: {duration(left.seconds)} of running, {left.gpu_hours:.1f} GPU-hours, as the finished siblings "
            f"took{unknown}"
        )
    elif left.num_guessed:
        yield (
            f"left: unknown, for no sibling of the {count(left.num_guessed, 'run')} is done yet (dry-run estimates one)"
        )


def doubts(view: View) -> Iterator[str]:
    """A sentence on what cannot be known of the runs now, and when it can be."""
    if view.answer is not None and not view.answer.reachable:
        yield (
            f"the queue could not be looked at ({view.answer.error}): what may be in it is left alone; status --now "
            f"asks again"
        )
    if alive := [run for run, state in view.states.items() if state.lives_on]:
        names = some([Path(run).name for run in alive])
        yield f"left alone: {count(len(alive), 'run')} still beating after the end of the script or job: {names}"
    yield from unsettled(view)


def handed_over(view: View) -> Iterator[str]:
    """A sentence on how much of the latest submission waits for room in the queue."""
    from grid.engine.submission.waves import scripts

    if view.submissions and (left := view.submissions[-1].left):
        yield (
            f"{scripts(left)} of {count(scripts(view.submissions[-1].chunks), 'script')} not handed over yet: the "
            f"same command goes on"
        )


def unsettled(view: View) -> Iterator[str]:
    """The runs whose job ended so short a time ago that they may still report something."""
    if waiting := [state.wait_s for state in view.states.values() if state.wait_s > 0]:
        ended = f"{count(len(waiting), 'run')} ended moments ago"
        yield (
            f"{ended}: what became of {'it' if len(waiting) == 1 else 'them'} can be told in {max(waiting):.0f} s "
            f"(NUQ_LAG_S)"
        )


def duration(seconds: float) -> str:
    """A duration in words: ``45 s``, ``12 min``, ``3.4 h``, ``2.1 days``."""
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            value = seconds / unit
            return f"{value:.0f} {name}" if value >= 10 or unit == 1 else f"{value:.1f} {name}"
    return f"{seconds / 86400:.1f} days"


# --- a plan --------------------------------------------------------------------------------------------------------


def show_plan(made: Made, root: Path) -> None:
    """Print a plan: its code, its runs, and what SLURM would make of them."""
    from grid.engine.submission import planning

    plan = made.plan
    print(f"{plan.title}: {count(len(made.runs), 'experiment')}; code {_code(plan.code)}")
    tell_folder(made.sweep)
    for line in made.sweep.duplicates():
        print(f"  {line}")
    words = Counter(state.word for state in made.view.states.values())
    submit = {item.run_dir for item in plan.submit}
    rows = []
    for word, number in sorted(words.items()):
        chosen = sum(1 for run, state in made.view.states.items() if state.word == word and run in submit)
        rows.append((word, str(number), str(chosen) if chosen else "", counted(made.view, word)))
    table(("STATE", "RUNS", "SUBMIT", ""), rows)
    for line in [*changes(made, root), *drifted(made, root), *hours(made), *doubts(made.view)]:
        print(line)
    if plan.chunks:
        print()
        table(
            ("ARRAY", "SCRIPTS", "RUNS", "AT ONCE", "AFTER", "EACH SCRIPT ASKS FOR"),
            [_row(made, chunk) for chunk in plan.chunks],
        )
    if shell := planning.of_the_shell(made, root):
        told = ", ".join(f"{name}={value}" for name, value in sorted(shell.items()))
        print(f"of this shell the jobs get {told}")
    for line in unmeasured([run.experiment for run in made.runs if run.run_dir in submit]) if submit else ():
        print(line)
    for item in plan.cancel:
        print(f"to cancel: {item.element}, {Path(item.run_dir).name}: no longer in the sweep")
    if not plan.submit:
        failed = words["failed"] + words["diverged"]
        print(
            "nothing to submit"
            + (f"; {failed} failed: {again('failures', made.options.grid, made.options.run_name)}" if failed else "")
        )


def _code(code: Mapping[str, Any]) -> str:
    commit = f"commit {code['commit'][:10]}{' with changes' if code['dirty'] else ''}, " if code["commit"] else ""
    return f"{commit}snapshot {code['digest'][:12]}"


def _row(made: Made, chunk: Chunk) -> tuple[str, ...]:
    from settings.resources import Resources

    asked = Resources(**chunk.resources)
    parallel = made.options.parallel
    words = [f"{asked.nodes} nodes" if asked.nodes > 1 else "", f"{asked.ranks} ranks" if asked.ranks > 1 else ""]
    words += [
        count(asked.gpus_for(parallel), f"{asked.gpu_type + ' ' if asked.gpu_type else ''}GPU"),
        count(asked.cpus_for(parallel), "core"),
        asked.mem_for(parallel),
        f"{asked.time} min" if asked.time and asked.time.isdecimal() else asked.time or "the default time",
    ]
    words += [
        f"{name}={value}"
        for name in ("partition", "account", "qos", "constraint", "exclude")
        if (value := getattr(asked, name))
    ]
    after = ", ".join(name for _, name in chunk.after)
    return (
        chunk.name,
        str(len(chunk.elements)),
        str(len(chunk.runs)),
        str(chunk.cap or ""),
        after,
        ", ".join(word for word in words if word),
    )
