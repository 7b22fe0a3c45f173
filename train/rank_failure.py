"""The failure that ended another rank, as it tells the first one, which alone keeps the status.

Otherwise the first rank would know no more than that the other is gone.

The rank writes a small file in the run folder, which the machines of a run share, before it leaves.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from nuq.errors import NonFiniteError, RankLost
from train.data.sources import DataError
from train.models import WeightsError
from train.process import status as statuses
from train.process.checkpoint import CheckpointError
from train.process.signals import Preempted

BAD_SETTINGS = (CheckpointError, WeightsError, DataError)  # errors that people can put right
_FILES = "failure.rank*.json"


def forget(run_dir: Path) -> None:
    """Delete what ranks of an earlier attempt have told.

    The first rank calls it before the others can join it.
    """
    for path in run_dir.glob(_FILES):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def told(run_dir: Path, rank: int) -> Iterator[None]:
    """Tell the first rank what goes wrong inside.

    It is not told what it knows itself: that a rank is lost or that all were asked to stop.
    """
    try:
        yield
    except (RankLost, Preempted):
        raise
    except Exception as error:
        diverged = statuses.EXIT_DIVERGED if isinstance(error, NonFiniteError) else statuses.EXIT_CRASH
        tell(run_dir, rank, statuses.EXIT_BAD_SETTINGS if isinstance(error, BAD_SETTINGS) else diverged, error)
        raise


def tell(run_dir: Path, rank: int, exit_code: int, failure: BaseException) -> None:
    """Tell the first rank of a failure.

    Nothing happens where the folder cannot be written: then the first rank says that this one is gone.
    """
    if rank:
        with contextlib.suppress(OSError):
            found = {"exit_code": exit_code, **statuses.account(failure)}
            statuses.write_text(run_dir / f"failure.rank{rank}.json", json.dumps(found, indent=1))


def found(run_dir: Path) -> tuple[int, statuses.RankFailed] | None:
    """The exit code and failure of the rank that told it first; None where no rank has told any."""
    try:
        path = min(run_dir.glob(_FILES), key=lambda path: path.stat().st_mtime_ns, default=None)
        if path is None:
            return None
        content = json.loads(path.read_text())
        rank = path.stem.removeprefix("failure.rank")
        return int(content["exit_code"]), statuses.RankFailed(
            f"rank {rank}: {content['message']}", str(content["signature"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
