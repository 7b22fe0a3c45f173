"""Ranks that share one device: ``python -m benchmarks.gpu.ranks [--device cuda] [--small]``.

Two processes run on the same GPU, over gloo with CUDA tensors (NCCL refuses two ranks on one GPU; its message is told).
The checks are: the exchange and the DDP hook give the bits of the same exchange of CPU tensors, with gradients that are
still on their way when the hook is called; FSDP2; how much of the exchange the backward pass hides; a rank that dies in
the middle of a step. Then one rank runs over NCCL. ``--device cpu`` does the same on the CPU, where all is gloo's. A
check that fails costs the others nothing, and one that hangs its own time; those that ``--seconds`` does not suffice
for are told. The exit code is 1 in all these cases. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.gpu import rank_checks
from tests.nuq.ranks import Ranks

CHECK_S = 60.0  # limit of one check
LEAST_S = 5.0  # with less time left, a check is not begun
CHECKS = (
    (2, rank_checks.functional),
    (2, rank_checks.hook),
    (2, rank_checks.fsdp),
    (2, rank_checks.overlap),
    (2, rank_checks.dies),
    (1, rank_checks.nccl),
    (2, rank_checks.nccl),
)


def checked(ranks: Ranks, check: Any, device: str, small: bool, limit_s: float = CHECK_S) -> dict[str, Any]:
    """The result of the first rank, or the failure."""
    outcomes = ranks.outcomes(check, device, small, timeout_s=limit_s)
    for rank, outcome in enumerate(outcomes):
        dead = outcome.exit_code is not None and not (check is rank_checks.dies and rank == 1)
        if outcome.error or outcome.hung or dead:
            words = outcome.error.strip().splitlines()[-1:] or [
                f"ended with {outcome.exit_code}" if dead else f"hung for {limit_s:.0f} s"
            ]
            print(outcome.error, flush=True)
            return {"failed": f"rank {rank}: {words[0]}"[:500]}
    return outcomes[0].value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every check, print one JSON object, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.ranks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="small vectors, for a look")
    names = list(dict.fromkeys(check.__name__ for _, check in CHECKS))
    parser.add_argument(
        "--checks", nargs="+", choices=names, default=names, metavar="CHECK", help=f"of {', '.join(names)}"
    )
    parser.add_argument("--seconds", type=float, default=160.0, help="for all of them (160)")
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    found: dict[str, Any] = {}
    groups = {world: Ranks(world) for world in (1, 2)}
    try:
        for world, check in CHECKS:
            if check.__name__ not in chosen.checks:
                continue
            began, name = time.monotonic(), f"{check.__name__} of {world}"
            if until - began < LEAST_S:
                found[name] = {"failed": "no time was left"}
            else:
                found[name] = checked(groups[world], check, chosen.device, chosen.small, min(CHECK_S, until - began))
            found[name]["seconds"] = round(time.monotonic() - began, 1)
            print(f"{name}: {json.dumps(found[name])}"[:1000], flush=True)
    finally:
        for group in groups.values():
            group.stop()
    failed = [name for name, one in found.items() if "failed" in one]
    print(json.dumps({"device": chosen.device, "failed": failed, "checks": found}))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
