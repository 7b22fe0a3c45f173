"""Started by torchrun in test_splits: trains every case on all ranks, some on fewer,
and writes digests of the result.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from nuq.registry import METHODS
from settings import resolving, sections
from train.steps.estimator import Measured
from train.steps.trainer import Trainer

STEPS = 20  # of a server: more than it lets others be behind (nuq/exchange/collectives/parameter_server.py)
FEW_STEPS = 7  # all updates of a method's levels, and a step with the last
BASE = {"data": "cifar10", "model": "resnet8", "stand_in": True, "batch_size": 1, "workers": 4}
UPDATES = {"method.update_at": [0, 2, 5], "method.update_every": 0, "method.num_samples": 3}
ROUNDS = {"exchange.local_steps": 3, "steps": 999, "eval_every": 0}  # both numbers of steps end amid one


def cases() -> dict[str, dict]:
    every = {}
    for name, entry in METHODS.items():
        every[name] = {"method": name, **(UPDATES if entry.adaptive else {})}
    every["alq fresh tensor"] = {
        "method": "alq",
        **UPDATES,
        "method.statistics": "fresh",
        "method.scope": "tensor",
        "method.bucket_size": 512,
    }
    for collective, names in {"two_stage": ["supersgd", "trn", "alq"], "server": ["trn", "alq"]}.items():
        for name in names:
            more = {"method.coding": "rans", "exchange.second_bits": 5} if name == "alq" else {}
            every[f"{name} {collective}"] = {
                "method": name,
                "exchange.collective": collective,
                **(UPDATES if METHODS[name].adaptive else {}),
                **more,
            }
    lines = [
        "*conv1* = topk ratio=0.1",
        "*norm* = supersgd scope=model",
        "blocks.2 = amq bits=4 update_at=[7] num_samples=2",
    ]
    for name, collective in {
        "alq layers": "gather",
        "alq layers two_stage": "two_stage",
        "powersgd layers": "auto",
    }.items():
        more = UPDATES if name.startswith("alq") else {}
        every[name] = {"method": name.split()[0], "layers": lines, "exchange.collective": collective, **more}
    every["powersgd auto"] = {"method": "powersgd", "exchange.collective": "auto"}
    for collective in ("gather", "two_stage"):  # what comes out of the exchange is clipped, on every rank alike
        every[f"qsgdinf clipped {collective}"] = {
            "method": "qsgdinf",
            "exchange.collective": collective,
            "optim.clip_norm": 0.5,
            "optim.clip_value": 0.05,
        }
    for collective in ("gather", "two_stage"):
        memory = {"feedback.kind": "ef21", "feedback.both": collective != "gather"}
        every[f"qsgdinf ef21 {collective}"] = {"method": "qsgdinf", "exchange.collective": collective, **memory}
    every["demo decayed"] = {"method": "demo", "feedback.decay": 0.9, "optim": "signsgd", "optim.lr": 0.01}
    every["qsgdinf muon"] = {"method": "qsgdinf", "model": "mlp", "optim": "muon"}
    every["alq local"] = {"method": "alq", **UPDATES, **ROUNDS}
    every["topk local server"] = {"method": "topk", "optim": "adamw", "exchange.collective": "server", **ROUNDS}
    streaming = {"exchange.fragments": 3, "exchange.overlap": 2}
    every["alq streaming"] = {"method": "alq", **UPDATES, **ROUNDS, **streaming}
    every["casq refreshed"] = {"method": "casq", "method.refresh_every": 3, "method.sample_size": 256}
    every["qsgdinf auto"] = {"method": "qsgdinf", "exchange.collective": "auto"}
    every["qsgdinf sgd trajectory"] = {
        "method": "qsgdinf",
        "trajectory": "sgd",
        "measure.every": 4,
        "measure.num_samples": 2,
    }
    formats = {"tensors.all": "smaq", "tensors.master": True, "tensors.min_size": 64, "optim": "adamw"}
    every["smaq tensors"] = {"method": "smaq", **formats}
    return every


FEWER = [  # also on two and three ranks
    *("sgd", "supersgd", "amq", "trn", "alq fresh tensor", "qsgdinf sgd trajectory"),
    *(
        "supersgd two_stage",
        "alq two_stage",
        "trn server",
        "alq server",
        "alq layers",
        "qsgdinf clipped two_stage",
        "smaq tensors",
        "alq local",
    ),
]
# What depends on the split or on who comes first, so that only the ranks are alike; workers of its own, for three
# ranks.
RANKS_ONLY: dict[str, dict] = {
    "hierarchical": {"method": "alq", "exchange.collective": "hierarchical", **UPDATES},
    "hierarchical local": {"method": "alq", "exchange.collective": "hierarchical", **UPDATES, **ROUNDS},
    "first of three": {"method": "qsgdinf", "exchange.collective": "server", "exchange.num_aggregate": 1},
    "first two of three": {"method": "qsgdinf", "exchange.collective": "server", "exchange.num_aggregate": 2},
}


def digest(trainer: Trainer, measured: list[Measured]) -> str:
    """Parameters, batch-norm buffers, workers' own models, levels, and what was measured (but for times)."""
    saved = trainer.state_dict()
    state = hashlib.sha256()
    own = sections.dotted(saved.get("local", {}))
    for tensor in [*saved["model"].values(), *own.values(), *saved["workers"]["compressor"].values()]:
        state.update(tensor.numpy().tobytes() if isinstance(tensor, torch.Tensor) else repr(tensor).encode())
    numbers = [
        {tag: value for tag, value in values.scalars.items() if not tag.startswith("time/")} for values in measured
    ]
    numbers += [{tag: masses.tolist() for tag, masses in values.histograms.items()} for values in measured]
    state.update(json.dumps(numbers).encode())
    return state.hexdigest()


def train(settings: dict, group: Any) -> str:
    trainer = Trainer(resolving.resolve(BASE | settings), device=torch.device("cpu"), group=group)
    measured = []
    for step in range(STEPS if settings.get("exchange.collective") == "server" else FEW_STEPS):
        if trainer.config["measure"]["every"] and step % trainer.config["measure"]["every"] == 0:
            measured.append(trainer.measure())
        trainer.train_step()
    trainer.part()
    return digest(trainer, measured)


def sent_in_a_step(group: Any) -> list[int]:
    """The message that the first worker encoded, and the bytes that this process handed to the network for it."""
    trainer = Trainer(resolving.resolve(BASE | {"method": "qsgdinf"}), device=torch.device("cpu"), group=group)
    trainer.train_step()
    return [trainer.totals.bytes, trainer.totals.network_bytes]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    result: dict[str, Any] = {f"{name} on 4": train(settings, dist.group.WORLD) for name, settings in cases().items()}
    os.environ["LOCAL_WORLD_SIZE"] = "2"  # as torchrun would say on the second of two machines
    result["sent"] = sent_in_a_step(dist.group.WORLD)
    for name in ("hierarchical", "hierarchical local"):
        result[f"{name} among 4"] = train(RANKS_ONLY[name], dist.group.WORLD)
    os.environ["LOCAL_WORLD_SIZE"] = "4"
    for size in (2, 3):
        group = dist.new_group(list(range(size)))
        if rank < size:
            result |= {f"{name} on {size}": train(cases()[name], group) for name in FEWER}
            if size == 3:
                result |= {
                    f"{name} among 3": train(RANKS_ONLY[name] | {"workers": 3}, group)
                    for name in RANKS_ONLY
                    if "three" in name
                }
    (folder / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
