"""The search for the run that used up the memory of a job that several runs shared.

The runs that had outgrown their share are the reason; the others were killed with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MEGABYTE = 1 << 20
NEARLY = 0.9  # a fraction of its share: what a run told last is a moment older than its end


@dataclass(frozen=True)
class Memory:
    """The most memory that a run had taken, by its own word, and the memory it asked for; 0 where that is not known."""

    peak_bytes: float = 0.0
    share_bytes: float = 0.0
    culprits: Collection[
        str
    ] = ()  # names of the runs that its job's want of memory is put down to; none: its job had enough, or it is alone

    @property
    def is_full(self) -> bool:
        """Whether the run had taken the memory that it asked for, or nearly."""
        return 0 < NEARLY * self.share_bytes <= self.peak_bytes

    def beside(self, words: str) -> str:
        """The words, after the memory that the run had taken, where that is known: ``1843 of 1024 MB, ...``."""
        if not self.peak_bytes:
            return words
        asked = f" of {self.share_bytes / MEGABYTE:.0f}" if self.share_bytes else ""
        return f"{self.peak_bytes / MEGABYTE:.0f}{asked} MB; {words}"


ALONE = Memory()


def culprits(killed: Mapping[str, Memory]) -> set[str]:
    """The runs to blame, among runs that were killed as their job ran out of memory.

    They are those that had outgrown their share; else the one that came nearest to it, for what a run tells of itself
    lags a little.  Where none tells anything, it may have been any.
    """
    over = {run for run, memory in killed.items() if 0 < memory.share_bytes < memory.peak_bytes}
    most = max(killed, key=lambda run: killed[run].peak_bytes / (killed[run].share_bytes or MEGABYTE), default="")
    if over or not most:
        return over
    return {most} if killed[most].peak_bytes else set(killed)
