"""The ranks of a benchmark: processes that answer commands until their input ends; each is a line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.network import Loopback, Network

ROOT = Path(__file__).parent.parent
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


@contextlib.contextmanager
def rank_processes(program: str, net: Network | Loopback, port: int) -> Iterator[list[Rank]]:
    """The processes of a module such as ``benchmarks.wire_rank``, one for every rank of a network.

    They are ended, if need be by force, on the way out.
    """
    with contextlib.ExitStack() as stack:
        ranks: list[Rank] = []
        for rank in range(net.num_ranks):
            settings = {
                "RANK": str(rank),
                "WORLD_SIZE": str(net.num_ranks),
                "MASTER_ADDR": net.address(0),
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": net.interface,
                "OMP_NUM_THREADS": "1",
            }
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = net.command(rank, [sys.executable, "-m", program])
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
            process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings}, **pipes)
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
