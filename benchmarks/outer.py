"""Local steps over slow links, to the loss of DDP: ``python -m benchmarks.outer``, as root.

A GPT of 10 million parameters, two ranks, one thread each, in network namespaces (``benchmarks.network``).  The losses
of a way by its steps do not depend on the link, and the seconds of its rounds hardly on the losses.  So each way
(``benchmarks.outer_ways``) trains once for every seed over a link that is not slowed down, with held-out losses at
fixed steps; then, link by link, the ways go on in turns, one round each (of DDP: one step), on the clock.

The target is 1 % above DDP's loss at its end, seed by seed; the seconds to it are the first evaluation's steps at or
below it, over the steps of a round, times the median of the rounds' seconds.  Evaluations are off the clock, and so is
what is sent once, the parameters before the first step.  The best way is, of the compressed ones with DDP's inner
optimizer and plain DiLoCo of their H beside them that reach the target with every seed, the first at it on the slowest
link.  The last line is one JSON object.

Weights, minibatches, learning rate (the best of three for DDP, with a seed of its own) and its form are the same for
all ways; the outer settings, and how many times DDP's steps a way takes, were chosen with that seed too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.network import Network, network_or_loopback, why_not
from benchmarks.outer_ways import DDP, SIZES, SPARSE, WAYS, Size
from benchmarks.rank_processes import Rank, ask_all, rank_processes
from benchmarks.timing import summary
from files.aligned import aligned

RANKS, PORT = 2, 29451
FASTEST_MBIT = 10_000  # of the trainings' link
LINKS_MBIT = {"10 Mbit/s": 10, "100 Mbit/s": 100, "1 Gbit/s": 1000}
LOOPBACK = "loopback"
NEAR = 1.01  # the target, over DDP's loss at its end
BARS = {"speedup_to_loss": 30, "speedup_vs_plain_diloco": 4, "loss_ratio": NEAR, "sparse_loco_ratio": 200}
Row = dict[str, Any]


@dataclass
class Measured:
    """What was measured, in the order of its measuring.

    trainings: ``way``, ``seed``, held-out ``losses`` by step, ``bytes`` of a round.  rounds: ``way``, ``link``, and the
    slowest rank's ``round_s`` and ``step_s``, the largest ``bytes`` and ``interface_bytes`` (None on the loopback).
    """

    told: Row = field(default_factory=dict)  # by the ranks: data and parameters
    trainings: list[Row] = field(default_factory=list)
    rounds: list[Row] = field(default_factory=list)


# --- measuring ---


def measured(size: Size, names: Sequence[str], seeds: Sequence[int], links: Sequence[str], turns: int) -> Measured:
    """All trainings, and so many rounds of each way on each link.

    Raises ValueError where there can be no network, and RuntimeError with a rank's last words where one failed.
    """
    found = Measured()
    with (
        network_or_loopback(LOOPBACK not in links, RANKS, FASTEST_MBIT, PORT) as (net, port),
        rank_processes("benchmarks.outer_rank", net, port) as ranks,
    ):
        found.told = ask_all(ranks, {"do": "begin", "size": asdict(size)})[0]
        for seed in seeds:
            for name in names:
                found.trainings.append(_trained(ranks, name, seed))
        for link in links:
            if isinstance(net, Network):
                net.set_rate(LINKS_MBIT[link])
            for _ in range(turns):
                found.rounds += [_timed(ranks, name, link) for name in names]
    return found


def _trained(ranks: Sequence[Rank], name: str, seed: int) -> Row:
    began = time.perf_counter()
    told = ask_all(ranks, {"do": "train", "way": asdict(WAYS[name]), "name": name, "seed": seed})
    losses = {int(step): loss for step, loss in told[0]["losses"].items()}
    last = max(losses)
    took = f"{time.perf_counter() - began:.0f} s"
    print(f"seed {seed} {name:12} loss {losses[last]:.4f} after {last} steps ({took})", file=sys.stderr, flush=True)
    return {"way": name, "seed": seed, "losses": losses, "bytes": max(one["bytes"] for one in told)}


def _timed(ranks: Sequence[Rank], name: str, link: str) -> Row:
    told = ask_all(ranks, {"do": "time", "name": name})
    row = {key: None if told[0][key] is None else max(one[key] for one in told) for key in told[0]}
    print(f"{link} {name:12} {row['round_s']:.2f} s a round", file=sys.stderr, flush=True)
    return {"way": name, "link": link, **row}


# --- what came of it ---


def first_at(losses: Mapping[int, float], target: float) -> int | None:
    """The step of the first evaluation at or below the target."""
    return next((step for step, loss in sorted(losses.items()) if loss <= target), None)


def figures_of(found: Measured) -> Row:
    """The figures of every way, and of the best one; a time is there where every seed reaches the target."""
    runs: dict[str, dict[int, Row]] = {}
    for row in found.trainings:
        runs.setdefault(row["way"], {})[row["seed"]] = row
    ends = {name: {seed: row["losses"][max(row["losses"])] for seed, row in of.items()} for name, of in runs.items()}
    steps: dict[str, dict[int, int]] = {}  # to the target, of the seeds that reach it
    for name, of in runs.items():
        firsts = {seed: first_at(row["losses"], NEAR * ends[DDP][seed]) for seed, row in of.items()}
        steps[name] = {seed: step for seed, step in firsts.items() if step is not None}
    reached = {name: of for name, of in steps.items() if len(of) == len(runs[name])}
    ways: dict[str, Row] = {}
    for name, of in runs.items():
        way = WAYS[name]
        num_bytes = statistics.fmean(row["bytes"] for row in of.values())
        ways[name] = {
            "title": way.title,
            "every": way.every,
            "inner": way.inner,
            "steps": max(of[min(of)]["losses"]),
            "bytes_a_round": round(num_bytes),
            "ratio_to_fp32": round(4 * found.told["parameters"] / num_bytes, 1),
            "final_loss": summary(list(ends[name].values())),
            "loss_ratio": summary([loss / ends[DDP][seed] for seed, loss in ends[name].items()]),
            "num_reached": len(steps[name]),
            "steps_to_target": summary(list(reached[name].values())) if name in reached else None,
            "links": {},
        }
    quickest: dict[str, str] = {}
    for link in dict.fromkeys(row["link"] for row in found.rounds):
        rounds = {name: [row for row in found.rounds if (row["way"], row["link"]) == (name, link)] for name in runs}
        seconds = {
            name: {seed: step * _median(rounds[name], "round_s") / WAYS[name].every for seed, step in of.items()}
            for name, of in reached.items()
        }
        for name in runs:
            ways[name]["links"][link] = _on_link(name, rounds[name], seconds)
        alike = [name for name in seconds if WAYS[name].inner == WAYS[DDP].inner]
        quickest[link] = min(alike, key=lambda name: statistics.median(seconds[name].values()))
    told = {**found.told, "near": NEAR, "seeds": len(runs[DDP]), "quickest": quickest}
    return {**told, **_best(ways), "ways": ways}


def _median(rows: Sequence[Row], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def _on_link(name: str, rounds: Sequence[Row], seconds: Mapping[str, Mapping[int, float]]) -> Row:
    """The figures of a way on one link; seconds: to the target by way and seed."""
    every, of_round = WAYS[name].every, summary([row["round_s"] for row in rounds])
    row: Row = {"num_rounds": len(rounds), "round_s": of_round, "step_s": round(_median(rounds, "round_s") / every, 3)}
    row["local_step_s"] = round(_median(rounds, "step_s"), 3) if every > 1 else None
    if rounds[0]["interface_bytes"] is not None:
        row["interface_bytes"] = round(statistics.fmean(one["interface_bytes"] for one in rounds))
    own = seconds.get(name)
    row["seconds_to_target"] = summary(list(own.values())) if own else None
    for key, other in (("speedup", DDP), ("speedup_vs_plain", WAYS[name].plain)):
        beside = seconds.get(other)
        row[key] = summary([beside[seed] / own[seed] for seed in own]) if own and beside else None
    return row


def _best(ways: Mapping[str, Row]) -> Row:
    """The figures that have bars, on the slowest link, of the best way; None where there is none, and what is held."""
    link = next(iter(ways[DDP]["links"]))
    mine = {
        name: row["links"][link]
        for name, row in ways.items()
        if WAYS[name].plain and WAYS[name].inner == WAYS[DDP].inner
    }
    there = [name for name, row in mine.items() if row["speedup"]]
    best = max(there, key=lambda name: mine[name]["speedup"]["median"], default=None)
    values: Row = {
        "speedup_to_loss": mine[best]["speedup"] if best else None,
        "speedup_vs_plain_diloco": mine[best]["speedup_vs_plain"] if best else None,
        "loss_ratio": ways[best]["loss_ratio"] if best else None,
        "sparse_loco_ratio": ways[SPARSE]["ratio_to_fp32"] if SPARSE in ways else None,
    }
    return {"link": link, "best": best, **values, "held": {name: holds(name, value) for name, value in values.items()}}


def holds(name: str, value: Any) -> bool:
    """Whether a figure, or the median of one, keeps its bar."""
    middle = value["median"] if isinstance(value, Mapping) else value
    return middle is not None and (middle <= BARS[name] if name == "loss_ratio" else middle >= BARS[name])


def print_tables(figures: Row) -> None:
    """Print a table of the trainings, and one for each link."""

    def middle(value: Mapping[str, float] | None, form: str) -> str:
        return format(value["median"], form) if value else "-"

    ways = figures["ways"]
    rows = [["", "H", "steps", "loss", "of DDP's", "steps to it", "kB a round", "fp32 over it"]]
    for row in ways.values():
        loss, ratio = middle(row["final_loss"], ".4f"), middle(row["loss_ratio"], ".3f")
        sent = [f"{row['bytes_a_round'] / 1e3:.1f}", f"{row['ratio_to_fp32']:.1f}"]
        to_it = middle(row["steps_to_target"], ".0f")
        rows.append([row["title"], str(row["every"]), str(row["steps"]), loss, ratio, to_it, *sent])
    print(aligned(rows))
    for link in ways[DDP]["links"]:
        rows = [[link, "H", "s a round", "s a step", "s to DDP's loss", "speed-up", "over DiLoCo"]]
        for row in ways.values():
            on = row["links"][link]
            took = [middle(on["round_s"], ".2f"), f"{on['step_s']:.3f}", middle(on["seconds_to_target"], ".0f")]
            faster = [middle(on["speedup"], ".1f"), middle(on["speedup_vs_plain"], ".1f")]
            rows.append([row["title"], str(row["every"]), *took, *faster])
        print("\n" + aligned(rows), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables and, as the last line, one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outer", description="Local steps to the loss of DDP.")
    others = [name for name in WAYS if name != DDP]
    parser.add_argument("--ways", nargs="*", choices=others, default=others, help="beside DDP (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="0 is of what was chosen (default: 1 2)")
    parser.add_argument("--links", nargs="+", choices=list(LINKS_MBIT), default=list(LINKS_MBIT), help="default: all")
    parser.add_argument("--turns", type=int, default=3, help="rounds of every way on a link (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="of DDP, in place of the size's own")
    parser.add_argument("--lr", type=float, help="peak learning rate, in place of the size's own")
    parser.add_argument("--quick", action="store_true", help="a tiny model on the loopback, without root")
    chosen = parser.parse_args(arguments)
    given = {"steps": chosen.steps, "lr": chosen.lr}
    size = replace(SIZES["quick" if chosen.quick else "10M"], **{k: v for k, v in given.items() if v is not None})
    links = [LOOPBACK] if chosen.quick else [link for link in LINKS_MBIT if link in chosen.links]  # slowest first
    for name, value in {"turns": chosen.turns, "steps": size.steps}.items():
        if value < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    if not chosen.quick and (reason := why_not()):
        parser.error(f"{reason}; --quick needs none")
    started = time.perf_counter()
    try:
        found = measured(size, [DDP, *chosen.ways], chosen.seeds, links, chosen.turns)
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"benchmarks.outer: {error}") from error
    figures = figures_of(found)
    print_tables(figures)
    print(f"\n{time.perf_counter() - started:.0f} s in all; {os.cpu_count()} cores")
    losses = [{key: row[key] for key in ("way", "seed", "losses")} for row in found.trainings]
    print(json.dumps({**figures, "lr": size.lr, "batch": size.batch, "trainings": losses}))


if __name__ == "__main__":
    main()
