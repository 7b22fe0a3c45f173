"""The subcommand that puts away the run folders which are no longer part of a sweep: prune."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from files.tables import add_json, as_json
from grid.commands.options import add_consent, command_parser, consent, count, experiments_of, table
from grid.commands.report import doubts, of_other_seeds

if TYPE_CHECKING:
    from grid.engine.submission.pruning import Left


def prune(argv: Sequence[str], root: Path) -> int:
    """List the run folders that are no longer part of a sweep, or put them away."""
    parser = command_parser(
        "prune",
        "The run folders that are no longer part of a sweep: its function or a default has changed, or --seeds "
        "leaves them out. What may be alive is left alone.",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--archive", action="store_true", help="move them to runs/.archive/, where no command looks")
    ways.add_argument("--delete", action="store_true", help="delete them")
    add_consent(parser, "moved or deleted")
    add_json(parser)
    parsed = parser.parse_args(argv)
    from grid.engine.states import folder_lock
    from grid.engine.states.chunk_submission import only_one
    from grid.engine.states.runs import RUNS, check_folder
    from grid.engine.submission import pruning
    from grid.engine.sweeps.families import load, seeds_text

    acts = parsed.archive or parsed.delete
    if parsed.json and acts:
        raise ValueError(f"--json --{'archive' if parsed.archive else 'delete'}: a document is of the list: give one")
    folder = load(parsed.grid, parsed.run_name).home
    with pruning.plugins_told(folder, root):
        sweep, experiments = experiments_of(parsed)
    check_folder(sweep, root)
    with contextlib.ExitStack() as locks:
        if acts:
            locks.enter_context(only_one(root, folder))
            locks.enter_context(folder_lock.unshared(root / RUNS / folder))
        with pruning.plugins_told(folder, root):
            found, view = pruning.folders_left(sweep, experiments, root, any_seed=parsed.seeds is None)
        if parsed.json:
            print(as_json({"folder": f"runs/{folder}", "runs": [_known(item) for item in found]}))
            return 0
        for line in doubts(view):
            print(line)
        for line in of_other_seeds(sweep, experiments, root) if parsed.seeds is None else ():
            print(f"{line}; prune --seeds {seeds_text(item.seed for item in experiments)} lists them as left")
        if found:
            _show(found)
        else:
            print(f"every run folder of runs/{folder} is part of the sweep")
        free = [item for item in found if not item.alone]
        place = pruning.archive_of(free, folder, root)
        halves = pruning.half_deleted(folder, root) if parsed.delete else []
        if not acts or not (free or halves):
            if free:
                if parsed.seeds is None and not parsed.overrides:
                    print("runs that were started with --set are part of the sweep where prune has the same --set")
                print(f"the same command with --archive moves them to {place}, with --delete it deletes them")
            return 0
        words = [f"{count(len(free), 'run folder')}, {_size(sum(item.size_bytes for item in free))}"] if free else []
        if halves:
            words.append(f"the rest of {count(len(halves), 'run folder')} whose deletion was interrupted")
        if not consent(f"{'Move' if parsed.archive else 'Delete'} {' and '.join(words)}?", parsed.yes):
            print("nothing was moved or deleted")
            return 1
        if halves:
            pruning.tidy(halves)
            print(f"deleted: {words[-1]}")
            if not free:
                return 0
        done = pruning.archive(free, place, root) if parsed.archive else pruning.delete(free, root)
        what = f"moved to {place}" if parsed.archive else "deleted"
        print(f"{what}: {count(len(done), 'run folder')}")
        for item in free:
            if item not in done:
                print(f"left alone: {item.run_dir}: another process has taken it meanwhile")
    return 0


def _show(found: Sequence[Left]) -> None:
    rows = [
        (Path(item.run_dir).name, item.state.word, _size(item.size_bytes), item.why, item.alone and f"({item.alone})")
        for item in found
    ]
    table(("RUN", "STATE", "SIZE", "WHY IT LEFT", "LEFT ALONE"), rows)
    known = [item for item in found if item.is_known]
    alone = sum(1 for item in known if item.alone)
    kept = f"; {alone} left alone" if alone else ""
    doubt = f"; {len(found) - len(known)} more not known" if len(known) < len(found) else ""
    print(
        f"\n{count(len(known), 'run folder')} no longer part of the sweep, "
        f"{_size(sum(item.size_bytes for item in known))}{kept}{doubt}"
    )


def _known(item: Left) -> dict[str, object]:
    """A folder as plain values."""
    of_state = {"state": item.state.word, "reason": item.state.reason}
    return {
        "run": item.run_dir,
        **of_state,
        "size_bytes": item.size_bytes,
        "why": item.why,
        "left_alone": item.alone,
    }


def _size(size_bytes: float) -> str:
    """A size in the largest unit that it fills: ``0 kB``, ``12 MB``, ``1.4 GB``."""
    for limit, unit, name in ((1e6, 1e3, "kB"), (1e9, 1e6, "MB")):
        if size_bytes < limit:
            return f"{size_bytes / unit:.0f} {name}"
    return f"{size_bytes / 1e9:.1f} GB"
