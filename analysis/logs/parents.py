"""What forks left: runs of one sweep that went on from a checkpoint of another run of it (``settings.fork``)."""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path

import pandas as pd

import args
from nuq.settings import declared

RUN, AT, OF = "fork.run", "fork.at", "fork.of"
_SEED = re.compile(r"-s\d+-[0-9a-f]{14}\Z")  # the end of a run's name
_NO_RESULT = {name for name, one in declared(args.Config).items() if not one.rule["identity"]}


def with_parents(settings: pd.DataFrame) -> pd.DataFrame:
    """The settings with a column OF: the run that each fork left, but for its seed.

    One that is not here counts as a run of its name but for the seed, as long as no fork left another of its name and
    seed.  Runs that are no forks have AT 0 and OF "", so that they are told from forks.  Where there are no forks,
    nothing of them is left.
    """
    forked = settings[RUN].fillna("").astype(bool) if RUN in settings else pd.Series(dtype=bool)
    if not any(forked):
        return settings.drop(columns=[name for name in (RUN, AT) if name in settings])
    alike = [name for name in settings if name not in {*_NO_RESULT, "seed", RUN}]
    parents = {run: Path(str(path)).name for run, path in settings.loc[forked, RUN].items()}
    alike_named = Counter(parent.rpartition("-")[0] for parent in set(parents.values()))
    numbers: dict[str, dict[str, int]] = {}  # stem -> settings but for the seed -> 1, 2, ...

    def name(run: str) -> str:
        """The name of what a run left; forks of forks have all that they left in it."""
        if run not in parents:
            return ""
        if (parent := parents[run]) not in settings.index:
            return _SEED.sub("", parent) if alike_named[parent.rpartition("-")[0]] == 1 else parent
        key, stem = repr((name(parent), settings.loc[parent, alike].astype(str).tolist())), _SEED.sub("", parent)
        number = numbers.setdefault(stem, {}).setdefault(key, len(numbers[stem]) + 1)
        return stem if number == 1 else f"{stem} {number}"

    of = [name(str(run)) for run in settings.index]
    return settings.assign(**{RUN: settings[RUN].where(forked), AT: settings[AT].where(forked, 0), OF: of})


@functools.cache
def no_result_names() -> frozenset[str]:
    """Settings that cannot change a result (where a run is kept, how often it logs), the seed, and a fork's parent.

    What that is but for its seed has a column of its own.
    """
    schemas = [("", args.Config), *((f"{section}.", schema) for section, schema in args.SECTIONS.items())]
    schemas += [(f"{group}.", schema) for group, options in args.GROUPS.items() for schema in options.values()]
    found = (prefix + name for prefix, of in schemas for name, one in declared(of).items() if not one.rule["identity"])
    return frozenset({"seed", RUN, *found})
