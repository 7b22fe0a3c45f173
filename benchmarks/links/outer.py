"""Local steps over slow links, to the loss of DDP.

A GPT of 10 million parameters trains on text on two ranks, one thread each.  The losses of a way by its steps do not
depend on the link, and the seconds of its rounds hardly on the losses.  So each way trains once for every seed over a
link that is not slowed down, with held-out losses at fixed steps; then, link by link, the ways go on in turns, one
round each (of DDP: one step), on the clock.

The target is 1 % above DDP's loss at its end, seed by seed; the seconds to it are the first evaluation's steps at or
below it, over the steps of a round, times the median of the rounds' seconds.  Evaluations and what is sent once are
off the clock.  The best way is, of the compressed ones with DDP's inner optimizer and plain DiLoCo of their H beside
them that reach the target with every seed, the first at it on the slowest link.

Weights, minibatches, learning rate (the best of three for DDP, with a seed of its own) and its form are the same for
all ways; the outer settings, and how many times DDP's steps a way takes, were chosen with that seed too.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.links.network import network_or_loopback
from benchmarks.links.ranks import FASTEST_MBIT, Rank, Row, measure, prepare, rank_processes, train
from benchmarks.links.spec import Spec
from benchmarks.timing import summary

RANKS = 2
LINKS_MBIT = {"10 Mbit/s": 10, "100 Mbit/s": 100, "1 Gbit/s": 1000}
LOOPBACK = "loopback"
NEAR = 1.01  # the target, over DDP's loss at its end
BARS = {"speedup_to_loss": 30, "speedup_vs_plain_diloco": 4, "loss_ratio": NEAR, "sparse_loco_ratio": 200}


@dataclass(frozen=True)
class Size:
    """A GPT and its training.

    batch: windows of a rank.  steps: of DDP.  The learning rate rises to ``lr`` over ``warm_up`` steps, and falls along
    a cosine to a tenth of it.  eval_every: steps between two evaluations on ``test`` held-out windows.
    """

    model: str
    batch: int
    steps: int
    warm_up: int
    eval_every: int
    test: int
    lr: float


@dataclass(frozen=True)
class Way:
    """A way to train: under DDP with the mean in bfloat16, or with ``nuq.OuterLoop`` and these settings.

    every: local steps of a round; 1 is DDP.  plain: the way of the same rhythm that sends float32, if there is one.
    inner: ``adamw`` or ``muon``.  longer: its training has so many times DDP's steps.
    """

    title: str
    every: int = 1
    settings: str = ""
    plain: str = ""
    inner: str = "adamw"
    longer: float = 1.0

    def num_steps(self, size: Size) -> int:
        """The steps of its training, in whole rounds."""
        return self.every * max(round(self.longer * size.steps / self.every), 1)

    def spec(self, size: Size, seed: int) -> Spec:
        variant = f"outer every={self.every} {self.settings}" if self.settings else "bf16"
        optimizer, of_data = f"{self.inner} lr={size.lr}", f"text num_test={size.test}"
        how = {"warm_up": size.warm_up, "falls_over": self.num_steps(size), "clip_norm": 1.0}
        return Spec(size.model, variant, size.batch, optimizer, of_data, seed, **how)


DDP, SPARSE = "ddp", "sparse_loco"
SIZES = {
    "10M": Size("gpt layers=6 heads=6 width=384", batch=4, steps=336, warm_up=32, eval_every=12, test=128, lr=0.0007),
    "quick": Size("gpt layers=1 heads=1 width=16", batch=2, steps=24, warm_up=4, eval_every=12, test=8, lr=0.003),
}
_MEAN = "outer_lr=1.0 outer_momentum=0.0 nesterov=false"  # the outer parameters are the ranks' mean
_ALQ = f"method=alq bits=3 {_MEAN}"
_TOP = f"method=topk bucket_size=4096 ratio={64 / 4096} values=2bit decay=0.95 min_size=0 {_MEAN}"
WAYS = {
    DDP: Way("DDP, bf16"),
    "diloco": Way("DiLoCo, float32", 24, f"method=supersgd {_MEAN}", longer=1.4),
    "alq": Way("DiLoCo, ALQ", 24, _ALQ, "diloco", longer=1.4),
    "alq_72": Way("DiLoCo, ALQ", 72, _ALQ, longer=1.5),
    SPARSE: Way("SparseLoCo", 12, _TOP, longer=2.0),
    "muloco": Way("MuLoCo, ALQ", 24, _ALQ, inner="muon"),
}


@dataclass
class Measured:
    """What was measured, in the order of its measuring.

    trainings: ``way``, ``seed``, held-out ``losses`` by step, ``bytes`` of a round.  rounds: ``way``, ``link``, and the
    slowest rank's ``round_s`` and ``step_s``, the largest ``bytes`` and ``interface_bytes`` (None on the loopback).
    """

    told: Row = field(default_factory=dict)  # data and parameters
    trainings: list[Row] = field(default_factory=list)
    rounds: list[Row] = field(default_factory=list)


def measured(size: Size, names: Sequence[str], seeds: Sequence[int], links: Sequence[str], turns: int) -> Measured:
    """All trainings, and so many rounds of each way on each link."""
    found = Measured()
    with network_or_loopback(LOOPBACK not in links, RANKS, FASTEST_MBIT) as net, rank_processes(net) as ranks:
        told = prepare(ranks, DDP, WAYS[DDP].spec(size, 0))[0]
        found.told = {name: told[name] for name in ("parameters", "data", "is_stand_in")}
        for seed in seeds:
            for name in names:
                way = WAYS[name]
                last, every = way.num_steps(size), math.lcm(size.eval_every, way.every)
                rows = train(ranks, name, way.spec(size, seed), last, every)
                losses = {row["step"]: row["loss"] for row in rows}
                num_bytes = rows[-1]["bytes_sent"] * way.every / last
                found.trainings.append({"way": name, "seed": seed, "losses": losses, "bytes": num_bytes})
                print(f"seed {seed} {name}: loss {losses[last]:.4f} after {last} steps", flush=True)
        for link in links:
            net.set_rate(LINKS_MBIT.get(link, FASTEST_MBIT))
            for _ in range(turns):
                found.rounds += [timed(ranks, name, link) for name in names]
    return found


def timed(ranks: Sequence[Rank], name: str, link: str) -> Row:
    """One more round of the last training of a way."""
    every = WAYS[name].every
    row = measure(ranks, name, every, with_repeats=True)
    sent, seen = zip(*row["bytes"], strict=True)
    told = {"round_s": every * row["step_s"], "step_s": row["median_step_s"], "bytes": every * max(sent)}
    return {"way": name, "link": link, **told, "interface_bytes": None if None in seen else every * max(seen)}


def first_at(losses: Mapping[int, float], target: float) -> int | None:
    """The step of the first evaluation at or below the target."""
    return next((step for step, loss in sorted(losses.items()) if loss <= target), None)


def figures_of(found: Measured) -> Row:
    """The figures of every way, and of the best one; a time is there if every seed reaches the target."""
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
        num_bytes = statistics.fmean(row["bytes"] for row in of.values())
        ways[name] = {
            "title": WAYS[name].title,
            "every": WAYS[name].every,
            "inner": WAYS[name].inner,
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
    """The figures that have bars, on the slowest link, of the best way; None if there is none, and what is held."""
    link = next(iter(ways[DDP]["links"]))
    there = {
        name: row["links"][link]
        for name, row in ways.items()
        if WAYS[name].plain and WAYS[name].inner == WAYS[DDP].inner and row["links"][link]["speedup"]
    }
    best = max(there, key=lambda name: there[name]["speedup"]["median"], default=None)
    values: Row = {
        "speedup_to_loss": there[best]["speedup"] if best else None,
        "speedup_vs_plain_diloco": there[best]["speedup_vs_plain"] if best else None,
        "loss_ratio": ways[best]["loss_ratio"] if best else None,
        "sparse_loco_ratio": ways[SPARSE]["ratio_to_fp32"] if SPARSE in ways else None,
    }
    return {"link": link, "best": best, **values, "held": {name: holds(name, value) for name, value in values.items()}}


def holds(name: str, value: Any) -> bool:
    """Whether a figure, or the median of one, keeps its bar."""
    middle = value["median"] if isinstance(value, Mapping) else value
    return middle is not None and (middle <= BARS[name] if name == "loss_ratio" else middle >= BARS[name])


def options(parser: argparse.ArgumentParser) -> None:
    add, others = parser.add_argument, [name for name in WAYS if name != DDP]
    add("--ways", nargs="*", choices=others, default=others, help="beside DDP (default: all)")
    add("--seeds", type=int, nargs="+", default=[1, 2], help="0 is of what was chosen (default: 1 2)")
    add("--links", nargs="+", choices=list(LINKS_MBIT), default=list(LINKS_MBIT), help="default: all")
    add("--turns", type=int, default=3, help="rounds of every way on a link (default: %(default)s)")
    add("--steps", type=int, help="of DDP, in place of the size's own")
    add("--lr", type=float, help="peak learning rate, in place of the size's own")
    add("--quick", action="store_true", help="a tiny model on the loopback, without root")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    given = {"steps": chosen.steps, "lr": chosen.lr}
    size = replace(SIZES["quick" if chosen.quick else "10M"], **{k: v for k, v in given.items() if v is not None})
    links = [LOOPBACK] if chosen.quick else [link for link in LINKS_MBIT if link in chosen.links]  # slowest first
    if min(chosen.turns, size.steps) < 1:
        raise ValueError(f"--turns {chosen.turns} --steps {size.steps}: both must be at least 1")
    found = measured(size, [DDP, *chosen.ways], chosen.seeds, links, chosen.turns)
    losses = [{key: row[key] for key in ("way", "seed", "losses")} for row in found.trainings]
    return {**figures_of(found), "lr": size.lr, "batch": size.batch, "trainings": losses}
