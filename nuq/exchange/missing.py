"""Who is missing: what ranks tell one another in the store of the process group when an exchange breaks.

An operation that fails does so with a certain rank.  That rank may only have given up on another: so each rank writes
into the store whom it misses, all follow that to the rank that misses nobody, and every error names the same one.  A
rank with an error of its own writes that, before it closes its connections: the others then name it and its error.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

ROLL_CALL = timedelta(seconds=5)
_STORE_STAYS_S = 5.0
GRACE_S = 1.0  # for ranks that notice at about the same time to say whom they miss, or that they failed, too
LATE, GONE, FAILED = "did not answer in time", "is gone", "failed: "
REFUSED_GRACE_S = 3.0  # for ranks that all refuse their arguments: their group then stays open
_FAILED_KEY = "nuq/failed"  # the first rank that told of an error of its own, and the error
_asked: list[int] = []  # whether this process has, once it missed a rank
_heard: list[str] = []  # what this process told or was told of a lost or failed rank, until it goes on
_failures = itertools.count(1)  # of this process: its number tells apart two that are alike


class Absence:
    """The time that this process took from one exchange to the next.

    A rank that the others have given up by then knows it from that.
    """

    def __init__(self) -> None:
        self._ended = time.monotonic()
        self.seconds = 0.0

    def ends(self) -> None:
        """End the absence: an exchange begins."""
        self.seconds = time.monotonic() - self._ended

    def begins(self) -> None:
        """Begin an absence: an exchange has ended well."""
        self._ended = time.monotonic()


absence = Absence()


def _ask_store(ask: Callable[[Store], str]) -> str:
    """The answer of the group's store; empty where it gives none.

    It may have died or fallen silent with the rank that kept it, and its timeout is no limit then: a thread asks it.
    """
    told: list[str] = []

    def asking() -> None:
        with suppress(Exception):
            assert dist.group.WORLD is not None
            store = dist.group.WORLD.get_group_store()
            store.set_timeout(ROLL_CALL)
            told.append(ask(store))

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(2 * ROLL_CALL.total_seconds())
    return told[0] if told else ""


def _told(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def first_told(mine: str | None, grace_s: float) -> str:
    """The lost rank and how it was lost, the same on all ranks.

    ``mine``: whom this rank misses ("2 is gone"), None where it cannot tell.

    It may miss one that has only given up on another in its turn.  So each rank writes whom it misses, leaves the
    others ``grace_s`` to do so, and follows what they wrote; the first one's answer is everyone's.  A rank that told of
    an error of its own comes before all others.
    """
    me = dist.get_rank()

    def ask(store: Store) -> str:
        until = time.monotonic() + grace_s
        if not (told := _told(store, _FAILED_KEY)):
            if mine:
                store.set(f"nuq/missed by {me}", mine)
            while time.monotonic() < until and not told and not store.check(["nuq/lost"]):
                time.sleep(0.02)
                told = _told(store, _FAILED_KEY)
        if not told:
            found = culprit(me, lambda rank: _told(store, f"nuq/missed by {rank}")) if mine else ""
            told = (store.compare_set("nuq/lost", "", found) if mine else store.get("nuq/lost")).decode()
        _heard.append(told)
        if not _asked:
            _asked.append(store.add("nuq/asked", 1))
        return told.partition("/")[2] if FAILED in told else told

    return _ask_store(ask)


def culprit(start: int, missed_by: Callable[[int], str]) -> str:
    """The rank at the end of the chain of ranks that miss one another, and how it is missed ("2 is gone").

    The chain leads from whom ``start`` misses to whom that one misses, and so on, to the rank that misses nobody.

    missed_by: the same of any rank, empty for one that has not said.  A rank that was late finds that the others have
    gone: it is blamed.
    """
    said, seen = missed_by(start), {start}
    while True:
        rank = int(said.split()[0])
        further = missed_by(rank)
        if not further or rank in seen or (said.endswith(LATE) and not further.endswith(LATE)):
            return said
        said = further
        seen.add(rank)


def until_all_have_asked(others: int) -> None:
    """Wait until so many ranks, all but the lost one, have asked the store, or for some seconds.

    The first rank calls it, as the store may end with that rank.
    """

    def ask(store: Store) -> str:
        until = time.monotonic() + _STORE_STAYS_S
        while time.monotonic() < until and store.add("nuq/asked", 0) < others:
            time.sleep(0.05)
        return ""

    _ask_store(ask)


def _count_key(group: dist.ProcessGroup) -> str:
    return f"nuq/failures in group {group.group_name}"


def some_rank_failed(group: dist.ProcessGroup) -> bool:
    """Whether a rank has told of an error of its own in this group, and not all have."""
    world = dist.get_world_size(group)
    return bool(_ask_store(lambda store: "some" if store.add(_count_key(group), 0) % world else ""))


def failed_on_all(group: dist.ProcessGroup, error: BaseException, grace_s: float) -> bool:
    """Tell the others of an error of this rank; whether all ranks of the group have one within ``grace_s``.

    Then none of them waits for another, and what was told is taken back.
    """
    text = " ".join(str(error).split())[:500]
    mine = f"{next(_failures)}/{dist.get_rank()} {FAILED}{type(error).__name__}{': ' if text else ''}{text}"
    world, key = dist.get_world_size(group), _count_key(group)

    def ask(store: Store) -> str:
        first = store.compare_set(_FAILED_KEY, "", mine).decode()
        count, until = store.add(key, 1), time.monotonic() + grace_s
        due = -(-count // world) * world
        while count < due and time.monotonic() < until:
            time.sleep(0.02)
            count = store.add(key, 0)
        if count < due:
            _heard.append(mine)
        elif first == mine:
            store.delete_key(_FAILED_KEY)
        return "" if count < due else "on all"

    return bool(_ask_store(ask))


def go_on() -> None:
    """Take back what was told of lost and failed ranks: this rank goes on with a new group, so all ranks of it know."""
    if not _heard:
        return

    def ask(store: Store) -> str:
        for key in ("nuq/lost", _FAILED_KEY):
            if _told(store, key) in _heard:
                store.delete_key(key)
        store.delete_key(f"nuq/missed by {dist.get_rank()}")
        if _asked:
            store.add("nuq/asked", -1)
        return ""

    _ask_store(ask)
    _heard.clear()
    _asked.clear()
