"""The way from a command line to a plan, and from a reviewed plan to jobs in the queue."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from files import plain
from files.atomic import write_text
from grid.engine.scripts import snapshot
from grid.engine.slurm import commands, sbatch_command, scheduler
from grid.engine.slurm.site import Site
from grid.engine.slurm.site_yaml import load_site
from grid.engine.states import evidence, ledger
from grid.engine.states.evidence import View
from grid.engine.states.ledger import ANY_TEXT, NAME, Chunk, Submission, asked
from grid.engine.states.runs import Run, check_folder, named, others, prepare, runs_of, sign, signature
from grid.engine.submission import waves, writing
from grid.engine.submission.plan import FRESH, Cancelled, Essence, Plan, Planned, arrays, digest
from grid.engine.submission.preflight import Finding, findings, known, rehearsed
from grid.engine.sweeps.experiments import Experiment, Sweep, plugins_of
from nuq.settings import read, setting
from settings.resources import Resources

PLAN = "plan.json"


def _not_kept(retry: object) -> None:
    raise ValueError(f"must be null, not {retry!r:.60}")


@dataclass(frozen=True)
class Options:
    """The options of a plan on the command line: enough to make it again."""

    grid: str = setting(dataclasses.MISSING, "the family", pattern=ANY_TEXT)
    run_name: str = setting(dataclasses.MISSING, "the sweep", pattern=ANY_TEXT)
    file: str = setting("", "the absolute path of a user's own family", pattern=ANY_TEXT)
    seeds: str | None = setting(None, "as --seeds", pattern=ANY_TEXT)
    overrides: Sequence[str] = setting((), "as --set", pattern=ANY_TEXT)
    site: str | None = setting(None, "the profile", pattern=ANY_TEXT)
    per_script: int = setting(1, "experiments of a script")
    parallel: int = setting(1, "of them at a time")
    max_running: int | None = setting(None, "scripts at a time")
    canary: bool = setting(False, "whether the first run of a shape goes ahead alone")
    ignore: Sequence[str] = setting((), "names of preflight.CHECKS", pattern=ANY_TEXT)
    resources: Mapping[str, Any] = setting({}, "as the command line names them", parse=asked)
    retry: Mapping[str, Mapping[str, Any]] | None = setting(
        None,
        "changed resources by run folder: only these, and also those that failed; no plan of them is kept for review",
        parse=_not_kept,
    )

    def __post_init__(self) -> None:
        known(self.ignore)
        for name in ("per_script", "parallel", "max_running"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} {value}: must be at least 1")
        if self.parallel > self.per_script:
            raise ValueError(
                f"--parallel {self.parallel}: a script holds --per_script {self.per_script} experiments; it cannot run "
                f"more at a time"
            )

    @property
    def is_part(self) -> bool:
        """Whether the sweep is taken with other seeds or settings than its own."""
        return self.seeds is not None or bool(self.overrides)


@dataclass(frozen=True)
class Made:
    """A plan together with the values it was made from."""

    plan: Plan
    options: Options
    sweep: Sweep
    runs: Sequence[Run]
    view: View
    resources: Mapping[str, Resources]
    site: Site


class _Shape(NamedTuple):
    """Resources that many runs ask for, and the same as plain values, stored once for all of them."""

    resources: Resources
    values: Mapping[str, Any]


def make(options: Options, root: Path, *, max_age_s: float = scheduler.MAX_AGE_S) -> Made:
    """The plan for a sweep as things stand. ValueError where a run asks for what its partition cannot give."""
    sweep, experiments = named(options.file or options.grid, options.run_name, options.seeds, options.overrides)
    check_folder(sweep, root)
    site = load_site(options.site)
    runs = runs_of(experiments, root)
    folder = experiments[0].folder
    view = evidence.of(runs, root, max_age_s=max_age_s)
    wanted = {run.run_dir for run in runs}
    shape = _shapes(options, site)
    asked = {run.run_dir: shape(run.experiment, {}).resources for run in runs}
    checked: set[Resources] = set()
    submit = []
    planned: set[str] = set()
    for run in runs:
        state = view.states[run.run_dir]
        unmet = [first for first in run.after if view.states[first].word != "done"]
        if options.retry is None:
            waits = state.word == "waiting" and planned.issuperset(unmet)
            chosen, changes = waits or (state.word in FRESH and state.may_start), {}
        else:
            chosen, changes = run.run_dir in options.retry and state.may_start, options.retry.get(run.run_dir, {})
        if chosen:
            resources, values = shape(run.experiment, changes)
            if resources not in checked:
                site.check(resources, options.parallel)
                checked.add(resources)
            firsts = [first for first in unmet if first in planned]
            submit.append(Planned(run.run_dir, run.experiment.label, state.word, values, firsts))
            planned.add(run.run_dir)
    # a part of the sweep says nothing of the others, and a title does not tell the files of two sweeps apart
    is_whole = options.retry is None and not options.is_part and not others(sweep, root)
    cancel = _unwanted(view, wanted, sweep.title) if is_whole else []
    code, files = snapshot.marked(root, plugins_of(experiments))
    chunks = arrays(
        submit,
        per_script=options.per_script,
        cap=options.max_running,
        canary=options.canary,
        max_elements=waves.largest_array(waves.limits(site, root)) if submit else waves.SMALLEST_ARRAY,
    )
    values = dataclasses.asdict(options), dataclasses.asdict(code)
    plan = Plan("", sweep.title, folder, *values, submit, cancel, chunks, digest(repr(site)), files)
    return Made(dataclasses.replace(plan, id=ledger.new_id(time.time())), options, sweep, runs, view, asked, site)


def _shapes(options: Options, site: Site) -> Callable[[Experiment, Mapping[str, Any]], _Shape]:
    """What experiments ask for, with changes to it: made once for all that ask for the same.

    The command line's word comes first, then their own and their sweep's, then the site's, then the built-in.
    """
    known: dict[str, _Shape] = {}

    def shape(experiment: Experiment, changes: Mapping[str, Any]) -> _Shape:
        key = repr((experiment.resources, changes))
        if key not in known:
            own = {**experiment.resources, **options.resources}
            made = Resources().merged(site.resources(own.get("partition"))).merged(own).merged(changes)
            known[key] = _Shape(made, dataclasses.asdict(made))
        return known[key]

    return shape


def _unwanted(view: View, wanted: set[str], title: str) -> list[Cancelled]:
    """Runs in the queue that the sweep no longer has.

    The sweep never had those of other seeds or settings, or of another sweep.
    """
    foreign = [item for item in view.submissions if item.is_part or item.title != title]
    parts = {run for item in foreign for chunk in item.chunks for run in chunk.runs}
    shared = {claim.element for run, claim in view.claims.items() if run in wanted}
    gone = [
        run
        for run, state in view.others.items()
        if state.word in ("pending", "running") and run in view.claims and run not in parts
    ]
    return [Cancelled(run, element, element not in shared) for run in gone if (element := view.claims[run].element)]


def slurm_is_here() -> bool:
    """Whether this machine can submit."""
    return commands.is_here("sbatch")


# --- keeping plans ------------------------------------------------------------------------------------------------


def keep(made: Made, found: Sequence[Finding], root: Path) -> None:
    """Write the plan to disk as the reviewed one; ``found`` is what ``check`` said of it."""
    path = ledger.folder_of(root, made.plan.folder) / PLAN
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "version": 1,
        "id": made.plan.id,
        "options": dataclasses.asdict(made.options),
        "essence": made.plan.essence(),
        "is_built": "build" not in [*made.options.ignore, *(item.check for item in found)],
    }
    write_text(path, json.dumps(values))


@dataclass(frozen=True)
class Reviewed:
    """The reviewed plan that ``keep`` wrote."""

    id: str = setting(dataclasses.MISSING, "the plan's", pattern=NAME)
    options: Options = setting(dataclasses.MISSING, "those that made it")
    essence: Essence = setting(dataclasses.MISSING, "what must not have changed")
    is_built: bool = setting(False, "all of it was built, and nothing was to be said of that")
    version: int = setting(1, "of this form of the file")

    def is_of(self, family: str, run_name: str) -> bool:
        """Whether this is the plan of the sweep, however the path of its file is written."""
        same = self.options.file == file_of(family) if family.endswith(".py") else self.options.grid == family
        return same and self.options.run_name == run_name


def file_of(family: str) -> str:
    """The absolute path of a user's own family; empty for one of grid/."""
    return str(Path(family).resolve()) if family.endswith(".py") else ""


def reviewed(root: Path, folder: str) -> Reviewed | None:
    """The plan that was last kept for this folder of runs; None where there is none."""
    path = ledger.folder_of(root, folder) / PLAN
    try:
        return read(Reviewed, json.loads(plain.read_bytes(path, None)))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}): make the plan again") from error


# --- submitting ---------------------------------------------------------------------------------------------------


def submission_of(made: Made) -> Submission:
    """The record of the submission that the plan describes; nothing of it is submitted, nor its snapshot made yet."""
    owner = signature(made.sweep, made.runs[0].root)
    plan = made.plan
    code = {**plan.code, "path": f"{snapshot.FOLDER}/{plan.code['digest'][: snapshot.DIGITS]}"}
    is_part, parallel = made.options.is_part, made.options.parallel
    return Submission(plan.folder, plan.id, plan.title, code, parallel, plan.chunks, is_part, owner)


def check(made: Made, root: Path, *, is_built: bool = False) -> list[Finding]:
    """The findings on what would make the plan's runs fail, and on all else that is to be said of it.

    Where the plan submits nothing, or what it submits is built already, they are on the data of earlier runs.
    """
    plan = made.plan
    submit = () if is_built else {item.run_dir for item in plan.submit}
    start = [run for run in made.runs if run.run_dir in submit]
    found = [] if "build" in made.options.ignore else rehearsed(start, made.runs, made.view.states, root, made.site)
    if not plan.submit:
        return [item.with_way_out() for item in found]
    item = submission_of(made)
    # SLURM's opinion is asked of one element: how many there may be is the matter of ``waves``
    bare = {
        chunk.name: dataclasses.replace(chunk, after=(), elements=chunk.elements[:1], cap=None) for chunk in plan.chunks
    }
    text = lambda name: writing.sbatch_text(item, bare[name], root, made.site)  # noqa: E731
    asked = sbatch_command.test_only if slurm_is_here() else None
    found += findings(plan, made.runs, root, made.site, asked, text, made.options.ignore)
    return [item.with_way_out() for item in found]


def of_the_shell(made: Made, root: Path) -> dict[str, str]:
    """What of this shell decides what the plan's jobs get, or how its runs work; nothing where SLURM is not here."""
    if not made.plan.submit or not slurm_is_here():
        return {}
    item = submission_of(made)
    shapes = {str(sorted(chunk.resources.items())): chunk for chunk in item.chunks}
    texts = (writing.sbatch_text(item, chunk, root, made.site) for chunk in shapes.values())
    return {name: value for text in texts for name, value in sbatch_command.of_the_shell(text).items()}


def apply(made: Made, root: Path, note: Callable[[Chunk], None]) -> tuple[Submission, str]:
    """Hand the plan's runs over: snapshot, run folders, scripts, then one sbatch per array.

    Call it under ``only_one``.  Returns what ``waves.hand_over`` does, with which the next call goes on.
    """
    item = writing.pinned(submission_of(made), root, plugins_of(run.experiment for run in made.runs))
    wanted = {planned.run_dir for planned in made.plan.submit}
    sign(made.sweep, root)
    prepare(run for run in made.runs if run.run_dir in wanted)
    item.save(root)
    return waves.hand_over(item, made.site, root, note)


def not_startable(item: Submission, view: View) -> list[str]:
    """Runs of the chunks still to be handed over that must not be, because they may be alive or are done."""
    states = view.states
    return [run for chunk in item.left for run in chunk.runs if run not in states or not states[run].may_start]


def released(item: Submission, view: View) -> Submission:
    """The submission without the conditions that are met already.

    SLURM forgets jobs, and takes one that it forgot for a success.

    ValueError where a canary that has to succeed first has ended otherwise.
    """
    states = {**view.others, **view.states}
    for chunk in item.left:
        for how, name in chunk.after:
            first = item.chunk(name)
            words = {states[run].word for run in first.runs if run in states} if first.is_settled else set()
            if how != "afterok" or not words or words & {"pending", "running"}:
                continue
            if words != {"done"}:
                raise ValueError(
                    f"{name}, which has to succeed before {chunk.name} is submitted, is "
                    f"{' and '.join(sorted(words))}: plan again"
                )
            item = item.with_chunk(
                dataclasses.replace(chunk, after=[pair for pair in chunk.after if pair != (how, name)])
            )
    return item
