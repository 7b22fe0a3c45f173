"""Submission of as many scripts as the cluster takes.

MaxJobCount is everybody's limit, MaxSubmitJobs each user's, MaxArraySize each array's.

Scripts for which there is no room stay in the submission's record, and the same command goes on with them.  The cluster
is asked for its limits; where SLURM refuses all the same (limits of accounts and qualities of service), the room is
found by halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grid.engine.slurm import sbatch_command, scheduler
from grid.engine.slurm.scheduler_cache import Facts, Full, Unreachable
from grid.engine.slurm.site import Site
from grid.engine.states import chunk_submission, ledger
from grid.engine.states.evidence import CACHE
from grid.engine.states.ledger import RECORD, Chunk, Submission
from grid.engine.submission import writing

SPARED = 0.1  # this share of MaxJobCount stays free: a full controller makes everybody's sbatch wait
SMALLEST_ARRAY = 1000  # elements of an array that every cluster takes: SLURM's default MaxArraySize is 1001


@dataclass(frozen=True)
class Room:
    """The number of further scripts that the cluster takes, and the limit that says so."""

    scripts: int
    why: str


def limits(site: Site, root: Path, *, max_age_s: float = scheduler.FACTS_AGE_S) -> Facts:
    """The cluster's limits; a limit that the site's profile names takes its place.

    Without SLURM, or its answer, they are the usual ones.
    """
    try:
        facts = scheduler.facts(root / CACHE, max_age_s)
    except Unreachable:
        facts = Facts(max_array_size=SMALLEST_ARRAY + 1)
    named = {"max_array_size": site.max_array_size, "max_submit": site.max_submit}
    return replace(facts, **{name: value for name, value in named.items() if value is not None})


def largest_array(facts: Facts) -> int:
    """The number of elements of the largest array.

    It is below MaxArraySize, and no more than one user, or everybody, may have at once.
    """
    return max(min(facts.max_array_size - 1, _most(facts, 0, 0).scripts), 1)


def room(site: Site, root: Path, wanted: int) -> Room | None:
    """The room that the cluster has now; None where the queue cannot be looked at.

    Old limits are asked again where they forbid something.
    """
    try:
        kept, own = scheduler.queue_size()
    except Unreachable:
        return None
    found = _most(limits(site, root), kept, own)
    return found if found.scripts >= wanted else _most(limits(site, root, max_age_s=0), kept, own)


def _most(facts: Facts, kept: int, own: int) -> Room:
    spared = max(1, round(SPARED * facts.max_job_count))  # SLURM itself leaves one free
    found = [
        Room(facts.max_job_count - spared - kept, f"the cluster keeps {kept} jobs of MaxJobCount={facts.max_job_count}")
    ]
    if facts.max_submit is not None:
        found.append(Room(facts.max_submit - own, f"you have {own} in the queue of MaxSubmitJobs={facts.max_submit}"))
    least = min(found, key=lambda item: item.scripts)
    return Room(max(least.scripts, 0), least.why)


def scripts(chunks: Sequence[Chunk]) -> int:
    """The number of elements of these arrays."""
    return sum(len(chunk.elements) for chunk in chunks)


def hand_over(item: Submission, site: Site, root: Path, note: Callable[[Chunk], None]) -> tuple[Submission, str]:
    """Write and submit the remaining scripts as far as there is room.

    Returns the submission, and why something of it has to wait (or nothing).

    Errors are those of ``chunk_submission.hand_over``.
    """

    def write(now: Submission, part: Chunk) -> Path:
        return writing.write_chunk(now, part, root, site)

    found = room(site, root, scripts(item.left))
    free, why = (found.scripts, found.why) if found else (None, "")
    refused: int | None = None  # this number was one too many, or more
    largest: int | None = None
    while item.left:
        chunk = item.left[0]
        fits = min(most for most in (len(chunk.elements), free, largest, refused and refused // 2) if most is not None)
        if fits < 1:
            break
        if fits < len(chunk.elements):
            item = item.split(chunk.name, fits)
            item.save(root)
            chunk = item.left[0]
        try:
            item = chunk_submission.hand_over(item, chunk, root, write, sbatch_command.submit, note)
        except sbatch_command.TooLarge:
            # the cluster's own word, whatever the profile says
            largest = limits(Site(), root, max_age_s=0).max_array_size - 1
            if not 1 <= largest < fits:
                raise
        except (sbatch_command.TooMany, Full) as error:
            if refused is None:
                limits(site, root, max_age_s=0)  # they have moved: for who looks next
            refused, why = (
                fits,
                "SLURM takes no more jobs now" if isinstance(error, Full) else "SLURM takes no more jobs of yours now",
            )
            item = chunk_submission.settle(ledger.read(item.place(root) / RECORD), root, scheduler.find)
        else:
            free, refused = free and free - fits, refused and refused - fits
    return item, why if item.left else ""
