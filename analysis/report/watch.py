"""The report of a sweep, written again whenever its runs have news.

The page reloads itself as often as it may have changed, and keeps filter, order and choices of the curves; it is
renamed into place whole.  It goes on until Ctrl-C, since a grid may have runs that have not begun; ``until_ended``
stops when all that have begun have ended.  The last page no longer reloads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from analysis import fresh
from analysis.logs.load import Logs
from analysis.report import runs
from analysis.report.write import How, write
from files.atomic import write_text

ENDED = {"done", "failed", "diverged", "cancelled", "lost"}  # none of these goes on by itself


def watch(
    sweep_dir: Path,
    load: Callable[[], Logs],
    folder: Path,
    how: How,
    *,
    until_ended: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Write the report into ``folder`` every ``how.every_s`` seconds in which something has changed; the exit code, 0.

    ``load`` gives the chosen runs.  Errors of reading and writing (OSError, ValueError) end the first look; later ones
    are said and waited out, since folders come and go while a grid runs, and disks fill.  Ctrl-C ends with a sentence.
    """
    every_s = how.every_s or 30.0
    before: tuple[str, dict[str, int]] | None = None
    path: Path | None = None
    problem = ""
    try:
        while True:
            of = fresh.digest(sweep_dir)  # before the logs are read: what comes meanwhile is news of the next look
            try:
                logs = load()
                # a state may change without a file: a run that falls silent is lost in the end
                counts = runs.counts(logs)
                is_over = until_ended and bool(counts) and ENDED.issuperset(counts)
                if (of, counts) != before or is_over:
                    path = write(logs, folder, replace(how, every_s=None if is_over else every_s))
                    _say(f"{', '.join(f'{count} {word}' for word, count in counts.items()) or 'no runs yet'}: {path}")
                    before = (of, counts)
            except (OSError, ValueError) as error:
                if path is None:
                    raise
                if str(error) != problem:
                    _say(f"waiting: {error}")
                problem = str(error)
                sleep(every_s)
                continue
            problem = ""
            if is_over:
                _say("every run that has begun has ended")
                return 0
            sleep(every_s)
    except KeyboardInterrupt:
        if path is not None:
            _settle(path)
        print()
        _say(f"stopped watching; {path} is the last report" if path else "stopped before the first report was written")
        return 0


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _settle(path: Path) -> None:
    """Stop the last page from reloading itself: nobody will write another."""
    text = path.read_text(encoding="utf-8")
    begin = text.find("<body data-every=")
    if begin >= 0:
        write_text(path, text[:begin] + "<body" + text[text.index(">", begin) :])
