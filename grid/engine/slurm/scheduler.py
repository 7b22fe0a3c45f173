"""SLURM's reports on submitted jobs, obtained with as few commands as possible; only this package knows SLURM.

One look is one ``squeue``: it is fresh, it lists everything that can be alive (and why what waits waits), and it needs
no accounting.  It forgets a job MinJobAge (300 s by default) after its end; so what it said of an end is remembered in
the cache, and only for elements that are neither in the queue nor explained by their own files does ``history`` ask
``sacct``, once.  ``sacct`` never decides whether anything is alive: its database lags behind the controller, and many
sites have none.
"""

from __future__ import annotations

import getpass
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grid.engine.slurm import scheduler_cache
from grid.engine.slurm.commands import accounting_start, leading_number, output_of, rows, timestamp, word_lists
from grid.engine.slurm.elements import expand
from grid.engine.slurm.scheduler_cache import ENDS, WAITING, Answer, Facts, Job, Unreachable, array_id

MAX_AGE_S = 40.0  # a look younger than this serves the next command too
HISTORY_AGE_S = 300.0  # accounting is asked again no sooner
FACTS_AGE_S = 86400.0
NEVER_S = 3600.0  # the age given to an id that accounting alone was asked for: too old to tell what is in the queue

# Asked with -r: otherwise elements that wait share a line, and one that waits for its turn is said to be held because
# others are.  The reason comes last, for it may hold anything.  What others may write (names of jobs) comes after a
# character that nobody types.
_QUEUE = "%i|%T|%V|%S|%e|%N|%r\x1f%j\x1f%o"
_HISTORY = "JobID,State,ExitCode,Start,End,NodeList,JobName"
# array id -> the names that its job may have, and ends of the path of its sbatch file; all are ours
Marks = Mapping[str, Collection[str]]
NO_MARKS: Marks = {}
_CONF = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


# --- asking -------------------------------------------------------------------------------------------------------


def ask(
    ids: Collection[str], *, cache: Path | None = None, max_age_s: float = MAX_AGE_S, marks: Marks = NO_MARKS
) -> Answer:
    """The jobs of these array ids: from the cache where it is young enough, else by exactly one command.

    A cluster may begin its ids anew: a job that has none of its id's ``marks`` is a stranger's, and not in the answer.
    Never raises for what the scheduler does: an answer that is not ``reachable`` says why in ``error``.  After a
    failure it is left alone for 40 s; ``max_age_s=0`` asks now, as everything that starts or cancels a run should.
    """
    now, cluster = time.time(), cluster_name()
    known = scheduler_cache.read(cache, cluster)
    ids = sorted(set(ids))
    if all(name in known.ids and 0 <= now - known.ids[name][0] < max_age_s for name in ids):
        return known.answer(ids, cluster) if ids else Answer(now, {}, cluster=cluster)
    count, failed_at, words = known.failures
    left_s = failed_at + MAX_AGE_S - now
    if max_age_s > 0 and count and 0 < left_s <= MAX_AGE_S:
        why = f"{words} (not asked again for {left_s:.0f} s)"
        return Answer(failed_at, {}, False, why, frozenset(ids), cluster)
    try:
        jobs = _queue(ids, marks)
    except Unreachable as error:
        known.failures = (count + 1, now, str(error))
        scheduler_cache.write(cache, cluster, known, now)
        return Answer(now, {}, False, str(error), frozenset(ids), cluster)
    known.failures = (0, 0.0, "")
    known.put(now, ids, jobs)
    scheduler_cache.write(cache, cluster, known, now)
    return known.answer(ids, cluster)


def history(elements: Collection[str], since: float, *, cache: Path | None = None, marks: Marks = NO_MARKS) -> Answer:
    """The ends of elements that are no longer in the queue, from accounting.

    ``since`` is when the first of them was submitted. For marks see ``ask``.

    At most one ``sacct``, for ids with an element whose end is not known yet and that was not asked for in the last 300
    s.  Ends are remembered: later answers of ``ask`` hold them.  Not ``reachable`` where there is no accounting.
    """
    now, cluster = time.time(), cluster_name()
    known = scheduler_cache.read(cache, cluster)
    ids = sorted({array_id(element) for element in elements})
    ended = {name: {el: job for el, job in known.ids.get(name, (now, {}))[1].items() if job.is_over} for name in ids}
    open_ids = {
        array_id(el) for el in elements if el not in ended[array_id(el)] and array_id(el) not in ended[array_id(el)]
    }
    asking = sorted(name for name in open_ids if not 0 <= now - known.history.get(name, 0.0) < HISTORY_AGE_S)
    try:
        found = _accounts(asking, since, marks) if asking else {}
    except Unreachable as error:
        return Answer(now, {}, False, str(error), frozenset(ids), cluster)
    for element, job in found.items():
        if job.is_over and array_id(element) in ended:
            ended[array_id(element)][element] = job
    for name in asking:
        known.history[name] = now
        asked, jobs = known.ids.get(name, (0.0, {}))
        known.ids[name] = (asked or now - NEVER_S, {**jobs, **ended[name]})
    if asking:
        scheduler_cache.write(cache, cluster, known, now)
    jobs = {element: job for name in ids for element, job in ended[name].items()}
    return Answer(now, jobs, ids=frozenset(ids), cluster=cluster)


def facts(cache: Path | None = None, max_age_s: float = FACTS_AGE_S) -> Facts:
    """The cluster's limits, at most so old; older ones where SLURM does not answer. Unreachable where it never did."""
    now, cluster = time.time(), cluster_name()
    known = scheduler_cache.read(cache, cluster)
    if known.facts and 0 <= now - known.facts[0] < max_age_s:
        return known.facts[1]
    try:
        text = output_of(["scontrol", "show", "config"])
    except Unreachable:
        if known.facts:
            return known.facts[1]
        raise
    values = dict(re.findall(r"^(\w+)\s*= ?(.*?)\s*$", text, re.MULTILINE))
    found = Facts(
        max_array_size=leading_number(values.get("MaxArraySize"), Facts.max_array_size),
        accounting=values.get("AccountingStorageType", "") not in ("", "(null)", "accounting_storage/none"),
        min_job_age_s=leading_number(values.get("MinJobAge"), Facts.min_job_age_s),
        max_job_count=leading_number(values.get("MaxJobCount"), Facts.max_job_count),
    )
    if found.accounting:
        found = replace(found, max_submit=_max_submit())
    known.facts = (now, found)
    scheduler_cache.write(cache, cluster, known, now)
    return found


def _max_submit() -> int | None:
    """The least MaxSubmitJobs of this user's associations; None where there is none, or where nobody tells."""
    try:
        user = getpass.getuser()
        told = output_of(["sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=MaxSubmitJobs"]).split()
    except (Unreachable, KeyError, OSError):
        return None
    return min((int(word) for word in told if word.isdecimal()), default=None)


def queue_size() -> tuple[int, int]:
    """The number of jobs that the controller keeps, and the number of this user's jobs that have not ended.

    The first number counts each element, and also jobs that have ended.

    Raises Unreachable.
    """
    kept = own = 0
    for line in output_of(["squeue", "-h", "-a", "-t", "all", "-o", "%i|%U|%T"]).splitlines():
        name, _, rest = line.partition("|")
        uid, _, word = rest.partition("|")
        try:
            count = len(expand(name))
        except Unreachable:  # a kind of job that is none of ours: 12+1
            count = 1
        kept += count
        own += count if uid == str(os.getuid()) and word not in ENDS else 0
    return kept, own


def find(name: str, since: float) -> str | None:
    """The id of the job of this unique name, from the queue, else from accounting; None where SLURM knows none.

    Settles a submission whose reply was lost.  Unreachable where the queue cannot be asked.
    """
    told = output_of(["squeue", "-h", "-a", "-t", "all", "-n", name, "-o", "%i"])
    if not told.strip():
        try:
            told = output_of(["sacct", "-X", "-P", "-n", "-S", accounting_start(since), "--name", name, "-o", "JobID"])
        except Unreachable:  # no accounting: the queue's word is all there is
            return None
    found = {array_id(expand(line)[0]) for line in told.splitlines() if line and not line.startswith("CLUSTER:")}
    return max(found, key=int) if found else None


def cluster_name() -> str:
    """The cluster that commands here speak to, found without asking it: one folder may be seen from several clusters.

    It is empty where nothing tells.
    """
    named = os.environ.get("SLURM_CLUSTERS", "")
    if named and "," not in named:
        return named
    for path in [os.environ["SLURM_CONF"]] if os.environ.get("SLURM_CONF") else _CONF:
        try:
            found = re.search(
                r"^\s*ClusterName\s*=\s*(\S+)", Path(path).read_text(errors="replace"), re.MULTILINE | re.IGNORECASE
            )
        except OSError:
            continue
        if found:
            return found[1]
    return os.environ.get("SLURM_CLUSTER_NAME", "")


# --- acting -------------------------------------------------------------------------------------------------------


def cancel(elements: Collection[str], *, only_waiting: bool = False) -> None:
    """Cancel these elements with ``scancel``; elements that have ended are passed over.

    Those that have begun are, too, with ``only_waiting``: SLURM looks when it is told.

    Raises ValueError with SLURM's words, or Unreachable.
    """
    for words in word_lists(elements):
        try:
            output_of(["scancel", *(["--state=PENDING"] if only_waiting else []), *words])
        except Unreachable as error:
            if _NOT_BEGUN.search(str(error)):
                raise
            if _SILENCE.search(str(error)):
                raise Unreachable(
                    f"{error}; it is not known whether the jobs were cancelled: look again with status"
                ) from None
            if not _ENDED.search(str(error)):
                raise ValueError(f"scancel refused: {error}") from None


_NOT_BEGUN = re.compile("there is no |cannot be started")
_SILENCE = re.compile(
    r"contact|connect|timed? ?out|communicat|gave no answer|there is no |cannot be started|process configuration",
    re.IGNORECASE,
)
_ENDED = re.compile(r"already (completed|completing|finished|done)|is already", re.IGNORECASE)


# --- SLURM's texts ------------------------------------------------------------------------------------------------


def _queue(ids: Sequence[str], marks: Marks) -> dict[str, Job]:
    try:
        text = output_of(["squeue", "-h", "-a", "-r", "-t", "all", "-j", ",".join(ids), "-o", _QUEUE])
    except Unreachable as error:
        if "Invalid job id specified" not in str(error):
            raise
        return {}  # squeue says this of one id that it has forgotten
    jobs = {}
    for name, (word, queued, start, end, node, rest) in rows(text, 6):
        reason, _, which = rest.partition("\x1f")
        if not _is_ours(name, which, marks):
            continue
        jobs |= dict.fromkeys(expand(name), _queue_job(word, queued, start, end, node, reason))
    return jobs


def _is_ours(name: str, which: str, marks: Marks) -> bool:
    """Whether a job is ours; ``which`` is its name and its script, with a \\x1f between them."""
    named = marks.get(array_id(name))
    job_name, _, script = which.partition("\x1f")
    return not named or not which or job_name in named or script.endswith(tuple(f"/{mark}" for mark in named))


def _queue_job(word: str, queued: str, start: str, end: str, node: str, reason: str) -> Job:
    return Job(
        word=word,
        reason="" if reason == "None" else reason,
        node=node,
        start=None if word in WAITING else timestamp(start),  # for a waiting job it is a forecast
        end=timestamp(end) if word in ENDS else None,  # for a live job it is the time limit
        queued=None if word in ENDS else timestamp(queued),
    )


def _accounts(ids: Sequence[str], since: float, marks: Marks) -> dict[str, Job]:
    text = output_of(["sacct", "-X", "-P", "-n", "-S", accounting_start(since), "-j", ",".join(ids), "-o", _HISTORY])
    jobs = {}
    for name, (state, exit_code, start, end, node, which) in rows(text, 6):
        if _is_ours(name, which, marks):
            jobs |= dict.fromkeys(expand(name), _accounts_job(state, exit_code, start, end, node))
    return jobs


def _accounts_job(state: str, exit_code: str, start: str, end: str, node: str) -> Job:
    code, _, number = exit_code.partition(":")
    died = leading_number(number, 0)
    word = state.split()[0] if state else ""  # the first word of "CANCELLED by 1000"
    if word.endswith("+"):  # cut short
        word = next((end for end in sorted(ENDS) if end.startswith(word[:-1])), word)
    return Job(
        word=word,
        reason=state if " " in state else "",
        node="" if node == "None assigned" else node,
        exit_code=128 + died if died else leading_number(code, 0),
        start=timestamp(start),
        end=timestamp(end),
    )
