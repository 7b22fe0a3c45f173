"""The ranks of a case: processes of ``benchmarks.links.rank``, what they are asked, and what the slowest answers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.links.network import Loopback, Network
from benchmarks.links.spec import Spec

ROOT = Path(__file__).parents[2]
_PORTS = itertools.count(29401)  # of a network, one for each set of processes
FASTEST_MBIT = 10_000  # for parameters and first steps
Row = dict[str, Any]
GRACE_S = 3.0  # time for the other ranks to tell what they saw of one that ended


@dataclass(frozen=True)
class Rank:
    process: subprocess.Popen[str]
    errors: IO[str]

    def ask(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer will tell
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """The next answer of the rank; None where the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def last_words(self) -> str:
        """The last words of a rank that has ended."""
        status = self.process.wait(10)
        self.errors.seek(0)
        lines = [line for line in self.errors.read().splitlines() if line.strip()]
        return f"killed by signal {-status}" if status < 0 else lines[-1] if lines else f"status {status}"


def environment(net: Network | Loopback, rank: int, port: int) -> dict[str, str]:
    """The environment of a rank, which meets the others at a port of the first one."""
    return os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(net.num_ranks),
        "MASTER_ADDR": net.address(0),
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": net.interface,
        "OMP_NUM_THREADS": "1",
    }


def free_port() -> int:
    """A port of the loopback that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def rank_processes(net: Network | Loopback) -> Iterator[list[Rank]]:
    """A process for every rank of a network; they are ended, if need be by force, on the way out."""
    port = free_port() if isinstance(net, Loopback) else next(_PORTS)
    with contextlib.ExitStack() as stack:
        ranks: list[Rank] = []
        for rank in range(net.num_ranks):
            settings = environment(net, rank, port)
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = net.command(rank, [sys.executable, "-m", "benchmarks.links.rank"])
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
            process = subprocess.Popen(command, cwd=ROOT, env=settings, **pipes)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            stack.callback(process.kill)
            ranks.append(Rank(process, errors))
        yield ranks
        for rank in ranks:
            assert rank.process.stdin is not None
            rank.process.stdin.close()
        for rank in ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(20)


def ask_all(ranks: Sequence[Rank], command: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answers of all ranks.

    Raises RuntimeError that names the ranks that ended, the first one first, and why.
    """
    for rank in ranks:
        rank.ask(command)
    answers: dict[int, dict[str, Any]] = {}
    ended: list[int] = []
    with selectors.DefaultSelector() as selector:
        for number, rank in enumerate(ranks):
            assert rank.process.stdout is not None
            selector.register(rank.process.stdout, selectors.EVENT_READ, number)
        while selector.get_map():
            ready = selector.select(GRACE_S if ended else None)
            if not ready:
                break  # the others may wait for it much longer
            for key, _ in ready:
                number = key.data
                selector.unregister(key.fileobj)
                answer = ranks[number].answer()
                if answer is None:
                    ended.append(number)
                else:
                    answers[number] = answer
    if ended:
        told = "; ".join(f"rank {number}: {ranks[number].last_words()}" for number in ended)
        raise RuntimeError(f"ranks ended during {dict(command)}: {told}")
    return [answers[number] for number in range(len(ranks))]


def prepare(ranks: Sequence[Rank], name: str, spec: Spec, steps: int = 0) -> list[Row]:
    """Let the ranks begin a training under a name, and take its first steps."""
    return ask_all(ranks, {"do": "prepare", "name": name, "spec": asdict(spec), "steps": steps})


def measure(
    ranks: Sequence[Rank], name: str, steps: int = 1, batch: int | None = None, with_repeats: bool = False
) -> Row:
    """The figures of the slowest rank in some steps of a training; bytes of every rank: own, and the interface's.

    buckets: when the last rank has the gradients of each, and its coordinates, of a variant that tells it.
    """
    how = {"steps": steps, "batch": batch, "with_repeats": with_repeats}
    told = ask_all(ranks, {"do": "measure", "name": name, **how})
    stages = sorted({stage for one in told for stage in one["stages_s"]})
    row: Row = {key: max(one[key] for one in told) for key in ("step_s", "median_step_s")}
    row["stages_s"] = {stage: max(one["stages_s"].get(stage, 0.0) for one in told) for stage in stages}
    row["bytes"] = [(one["own_bytes"], one["interface_bytes"]) for one in told]
    return row | {"buckets": of_all_ranks(one["buckets"] for one in told)}


def of_all_ranks(buckets: Iterable[Sequence[tuple[float, int]]]) -> list[tuple[float, int]]:
    """The buckets as they can be exchanged: when the last rank has the gradients of each."""
    return [(max(there for there, _ in ranks), ranks[0][1]) for ranks in zip(*buckets, strict=True)]


def train(ranks: Sequence[Rank], name: str, spec: Spec, steps: int, eval_every: int) -> list[Row]:
    """The rows of the first rank in a whole training."""
    prepare(ranks, name, spec)
    return ask_all(ranks, {"do": "train", "name": name, "steps": steps, "eval_every": eval_every})[0]["rows"]
