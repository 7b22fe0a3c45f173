"""The subcommands that tell what became of a sweep: status, logs, failures, collect."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from files.aligned import some
from files.escaped import plain
from files.tables import FORMATS, add_json, as_json, check_formats, encoded
from grid.commands.options import (
    again,
    as_planned,
    clipped,
    command_parser,
    count,
    experiments_of,
    looked_at,
    runs_named,
    table,
)
from grid.commands.overview import eta_s, left_s, screen
from grid.commands.report import counted, doubts, duration, handed_over, of_other_seeds, unsettled

if TYPE_CHECKING:
    from grid.engine.states.evidence import View
    from grid.engine.states.runs import Run
    from grid.engine.sweep import Sweep

FEW = 40  # at most this many runs are listed one by one
REFRESH_S = 15.0  # the time between looks at the files; the scheduler is asked every 40 s at most
METRICS = 3
LINE_BYTES = 400  # a generous length of a line of a log


def status(argv: Sequence[str], root: Path) -> int:
    """The state of every experiment of a sweep."""
    parser = command_parser(
        "status", "The state of every experiment, from its own files and one query of the scheduler."
    )
    parser.add_argument(
        "--all", action="store_true", help=f"one line for every run (default: up to {FEW} runs; --watch: one screen)"
    )
    parser.add_argument(
        "--watch", action="store_true", help=f"again every {REFRESH_S:.0f} s until everything has ended, or Ctrl-C"
    )
    parser.add_argument("--now", action="store_true", help="ask the scheduler now, however fresh its last answer is")
    add_json(parser)
    parsed = parser.parse_args(argv)
    from grid.engine.slurm import scheduler
    from grid.engine.states import evidence
    from grid.engine.states.runs import check_folder, runs_of

    if parsed.json and parsed.watch:
        raise ValueError("--json --watch: a document is of one moment: give one of them")
    as_planned(parsed, root)
    sweep, experiments = experiments_of(parsed)
    check_folder(sweep, root)
    runs = runs_of(experiments, root)
    view = evidence.of(runs, root, max_age_s=0.0 if parsed.now else scheduler.MAX_AGE_S)
    if parsed.json:
        print(as_json(_document(runs, view)))
        return 0
    while True:
        size = shutil.get_terminal_size((80, 24))
        one_screen = parsed.watch and not parsed.all and len(runs) > size.lines // 2
        title = f"{Path(parsed.grid).name} {parsed.run_name}"
        more = [line for line in (_asked(view).strip(), *_beside(view)) if line]
        lines = screen(title, runs, view, root, more, size.lines - 3, size.columns) if one_screen else []
        if parsed.watch and sys.stdout.isatty():
            print("\033[H\033[2J", end="", file=plain(sys.stdout))
        if one_screen:
            print("\n".join(lines))
        else:
            _show(sweep, runs, view, root, every=parsed.all or len(runs) <= FEW)
            if not parsed.watch:
                _data_here(runs, view, root)
        alive = [
            state
            for state in [*view.states.values(), *view.others.values()]
            if state.word in ("running", "pending", "unknown")
        ]
        if not parsed.watch or not alive:
            return 0
        print(f"\n{time.strftime('%H:%M:%S')}, again in {REFRESH_S:.0f} s (Ctrl-C ends this, not the runs)", flush=True)
        time.sleep(REFRESH_S)
        view = evidence.of(runs, root)


def _document(runs: Sequence[Run], view: View) -> dict[str, Any]:
    """The states as plain values."""
    from grid.engine.states.collecting import state_of

    return {
        "counts": Counter(state.word for state in view.states.values()),
        "runs": [
            {**state_of(run, view), "seed": run.experiment.seed, "metrics": view.states[run.run_dir].metrics}
            for run in runs
        ],
        "notes": [*doubts(view), *_beside(view)],
    }


def _show(sweep: Sweep, runs: Sequence[Run], view: View, root: Path, *, every: bool) -> None:
    from grid.engine.states.runs import left_over, other_seeds
    from grid.engine.submission.pruning import unclaimed
    from grid.engine.submission.rehearsal import mixed

    if every:
        _one_by_one(runs, view)
    else:
        _running(runs, view)
    words = Counter(state.word for state in view.states.values())
    print("\n" + ", ".join(f"{number} {word}" for word, number in words.items()) + _asked(view))
    for word in ("waiting", "pending", "checkpointed", "failed", "diverged", "unknown", "lost", "blocked"):
        if words[word] and (text := counted(view, word)):
            print(f"why {word}: {text}")
    if silent := [run for run in runs if view.states[run.run_dir].stale]:
        longest = max(view.states[run.run_dir].age_s or 0 for run in silent)
        print(
            f"silent: {count(len(silent), 'running one')} without a sign of getting on for up to {longest / 60:.0f} min"
        )
    if stopped := sum(1 for state in view.states.values() if state.suspended):
        print(
            f"suspended: {count(stopped, 'run')}, by SLURM or with scontrol suspend; they go on when they are resumed"
        )
    for line in [
        *handed_over(view),
        *unsettled(view),
        *_eta(runs, view),
        *mixed(runs, view.states),
        *_seed_groups(runs, view),
        *_beside(view),
    ]:
        print(line)
    experiments = [item.experiment for item in runs]
    for line in of_other_seeds(sweep, experiments, root):
        print(line)
    old = left_over([*experiments, *other_seeds(sweep, experiments, root)], root)
    with contextlib.suppress(ValueError):  # prune says why
        old = old and unclaimed(sweep, experiments, root)
    if old:
        some = ", ".join(path.name for path in old[:5]) + (" ..." if len(old) > 5 else "")
        print(f"{count(len(old), 'folder')} of other settings beside them (see prune): {some}")


def _data_here(runs: Sequence[Run], view: View, root: Path) -> None:
    """A sentence on runs that were made on other data than lie here, or where the last plan's site keeps them."""
    from grid.engine.slurm.site_yaml import load_site
    from grid.engine.submission.planning import reviewed
    from grid.engine.submission.rehearsal import rehearse

    try:
        plan = reviewed(root, runs[0].experiment.folder)
        site = load_site(plan.options.site if plan else None)
    except (ValueError, OSError) as error:
        print(f"where the data lie is not known: {error}")
        return
    found = rehearse([], runs, view.states, root, site)
    for line in (*found.problems, *found.notes):
        print(line)


def _beside(view: View) -> Iterator[str]:
    """Runs in the queue that are not among the runs asked for."""
    kept = {run: state for run, state in view.others.items() if run not in view.claims or not view.claims[run].recalled}
    if also := [state for state in kept.values() if state.word in ("pending", "running", "unknown")]:
        jobs = ", ".join(sorted({state.element.partition("_")[0] for state in also if state.element}))
        where = "also in the queue" if any(state.word != "unknown" for state in also) else "perhaps in the queue too"
        yield f"{where}: {count(len(also), 'run')} of other settings or seeds, job {jobs}"
    if strays := view.strays:
        named = some([f"{task.element} ({task.job.reason or task.job.word})" for task in strays])
        yield f"also in the queue: {count(len(strays), 'script')} that no run waits for: {named}; cancel takes them"


def _asked(view: View) -> str:
    if view.answer is None or (not view.queue and all(state.word == "done" for state in view.states.values())):
        return ""
    if not view.answer.reachable:
        return f" (the scheduler cannot be asked: {view.answer.error}; --now asks again at once)"
    return f" (the scheduler's word is {max(time.time() - view.answer.asked, 0):.0f} s old)"


def _one_by_one(runs: Sequence[Run], view: View) -> None:
    rows = []
    for run in runs:
        state = view.states[run.run_dir]
        before = "was " if state.word == "pending" else ""  # the run is of an earlier life or submission
        progress = f"{before}{state.step}/{state.steps}" if state.steps else ""
        element = state.element if state.word in ("pending", "running") else ""
        item = run.experiment
        rows.append(
            (
                item.label,
                str(item.seed),
                state.word,
                progress,
                _metrics(state.metrics),
                item.name,
                element,
                state.reason,
            )
        )
    table(("LABEL", "SEED", "STATE", "STEP", "LATEST", "RUN", "JOB", ""), rows)


def _running(runs: Sequence[Run], view: View) -> None:
    """A table of the running runs, slowest first.

    It says how far each is, how well it does, how long it still needs, and when it was last heard of.
    """
    rows = []
    running = [run for run in runs if view.states[run.run_dir].word == "running"]
    for run in sorted(running, key=lambda run: -left_s(view.states[run.run_dir]))[:FEW]:
        state = view.states[run.run_dir]
        left = left_s(state)
        job = view.jobs.get(run.run_dir)
        where = state.element or "here"
        heard = f"{duration(state.age_s or 0)} ago{f': {state.reason}' if state.reason else ''}"
        rows.append(
            (
                *(run.experiment.label, str(run.experiment.seed), f"{state.step}/{state.steps}"),
                *(duration(left) if left else "", _metrics(state.metrics)),
                *(f"{where} {job.node if job else ''}".strip(), heard),
            )
        )
    if rows:
        table(("RUNNING", "SEED", "STEP", "LEFT", "LATEST", "WHERE", "HEARD"), rows)
    if len(running) > FEW:
        print(f"... and {len(running) - FEW} more that need less time still (--all lists every run)")


def _metrics(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in list(metrics.items())[:METRICS])


def _eta(runs: Sequence[Run], view: View) -> Iterator[str]:
    """A sentence on when every run will have ended."""
    states = [view.states[run.run_dir] for run in runs]
    if (left := eta_s(states)) is not None:
        yield (
            f"about {duration(left)} left, if {sum(state.word == 'running' for state in states)} keep running at a time"
        )


def _seed_groups(runs: Sequence[Run], view: View) -> Iterator[str]:
    """Settings for which some seeds are done and others are not."""
    groups: dict[str, list[tuple[int, bool]]] = {}
    for run in runs:
        groups.setdefault(run.experiment.label, []).append(
            (run.experiment.seed, view.states[run.run_dir].word == "done")
        )
    partial = {label: seeds for label, seeds in groups.items() if len({done for _, done in seeds}) > 1}
    if partial:
        yield f"incomplete: {count(len(partial), 'seed group')} of {len(groups)}"
        for label, seeds in list(partial.items())[:5]:
            missing = ", ".join(str(seed) for seed, done in seeds if not done)
            yield f"  {label}: seeds {missing} missing, {sum(done for _, done in seeds)} done"
        if len(partial) > 5:
            yield f"  ... and {len(partial) - 5} more"


# --- logs ---------------------------------------------------------------------------------------------------------


def logs(argv: Sequence[str], root: Path) -> int:
    """The end of a run's log."""
    parser = command_parser(
        "logs", "The end of a run's log (and of its job's), or follow it.", one="the one that failed or began last"
    )
    parser.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="so many lines (default: 20)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--job", action="store_true", help="the log of the SLURM job instead of that of the run")
    parsed = parser.parse_args(argv)
    from grid.engine.states.run_files import tail

    if parsed.lines < 1:
        raise ValueError(f"--lines {parsed.lines}: must be at least 1")
    from grid.engine.states import evidence, ledger
    from grid.engine.states.job_logs import log_of

    as_planned(parsed, root)
    runs = [run for run in runs_named(parsed, root) if run.folder.path.is_dir()]
    if not runs:
        raise ValueError(f"no run of {parsed.grid} {parsed.run_name} has begun")
    if len(runs) > 1:
        view = evidence.of(runs, root)
        runs.sort(key=lambda run: (view.states[run.run_dir].word not in ("failed", "diverged"), -_last_word(run)))
    run = runs[0]
    said_nothing = not run.folder.log.exists() or run.folder.log.stat().st_size == 0
    job_log = (
        log_of(ledger.read_all(root, run.experiment.folder), run.run_dir, root) if parsed.job or said_nothing else None
    )
    if parsed.job and job_log is None:
        raise ValueError(f"{run.run_dir} was not submitted to SLURM: its own log is {run.folder.log}")
    # where the run wrote nothing, its job may have
    path = job_log if job_log is not None and (parsed.job or job_log.exists()) else run.folder.log
    print(f"# {run.experiment.label}, seed {run.experiment.seed}: {path}", flush=True)
    for line in tail(path, parsed.lines * LINE_BYTES).splitlines()[-parsed.lines :]:
        print(line)
    if parsed.follow:
        _follow(path)
    return 0


def _last_word(run: Run) -> float:
    """The time at which the run's log was last written to."""
    return run.folder.log.stat().st_mtime if run.folder.log.exists() else 0.0


def _follow(path: Path) -> None:
    with path.open(errors="replace") as file:
        file.seek(0, 2)
        while True:
            text = file.read()
            if text:
                print(text, end="", flush=True)
            else:
                time.sleep(0.5)


# --- failures -----------------------------------------------------------------------------------------------------


def failures(argv: Sequence[str], root: Path) -> int:
    """Print the failures of a sweep, grouped by signature."""
    parser = command_parser("failures", "Failed runs grouped by what went wrong, with an example each.")
    add_json(parser)
    parsed = parser.parse_args(argv)
    from grid.engine.states.triage import groups
    from grid.engine.submission.planning import slurm_is_here
    from grid.engine.submission.retry import failures_of

    runs, view = looked_at(parsed, root)
    found = failures_of(runs, view, root)
    if parsed.json:
        of_kind = [dataclasses.asdict(group) for group in groups(found.values())]
        print(as_json({"failures": of_kind, "notes": list(doubts(view))}))
        return 0
    for line in doubts(view):
        print(line)
    if not found:
        print("no run has failed")
        return 0
    for group in groups(found.values()):
        print(f"{count(group.count, 'run')}: {group.kind}: {group.signature}")
        print(f"    for example {group.example}: {clipped(group.line, 2 * LINE_BYTES)}")
    here = "" if slurm_is_here() else " --here"
    print(f"\nretry: {again('retry', parsed.grid, parsed.run_name)}{here} [--kind KIND] [--code]")
    return 0


# --- collect ------------------------------------------------------------------------------------------------------


def collect(argv: Sequence[str], root: Path) -> int:
    """Write a table with one row per run: its settings, its state, and its last measurements."""
    parser = command_parser("collect", "A table of runs: settings, state, latest measurements, time, where they ran.")
    parser.add_argument("--format", choices=FORMATS, default="csv", help="of the file (default: csv)")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the file (default: runs/<sweep>/runs.csv, or as the format's; -: standard output)",
    )
    add_json(parser)
    parsed = parser.parse_args(argv)
    from files.atomic import aside
    from grid.engine.states.collecting import rows_of

    if parsed.json and (parsed.out or parsed.format != "csv"):
        raise ValueError("--json: prints one document: it goes without --out and --format (--format json --out FILE)")
    form, out = ("json", "-") if parsed.json else (parsed.format, parsed.out)
    if (form, out) == ("parquet", "-"):
        raise ValueError("--format parquet: is no text, so it takes a file (--out FILE)")
    check_formats([form])
    runs, view = looked_at(parsed, root)
    columns, rows = rows_of(runs, view)
    content = encoded(rows, form, columns)
    if out == "-":
        print(content.decode(errors="surrogateescape"), end="")
        return 0
    path = Path(out) if out else root / "runs" / runs[0].experiment.folder / f"runs.{FORMATS[form]}"
    if path.exists() and not path.is_file():
        raise ValueError(f"--out {path}: is no file (-: standard output)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as place:
            place.write_bytes(content)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; --out FILE writes the table elsewhere") from error
    print(f"wrote {path}: {count(len(rows), 'run')}, {len(columns)} columns")
    return 0
