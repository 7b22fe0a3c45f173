"""Started by torchrun in test_splits: trains every case on all ranks, some on fewer,
and writes digests of the result.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from settings import resolving
from tests.train.trainings import BASE, LEVELS, ROUNDS, STEPS, TRAININGS, digests
from train.steps.trainer import Trainer

SERVED = 20  # steps of a server: more than it lets others be behind (nuq/exchange/collectives/parameter_server.py)
FEWER = (  # also on two and three ranks
    *("sgd", "supersgd two_stage", "qsgdinf trajectory", "qsgdinf clipped two_stage", "trn server", "alq fresh tensor"),
    *("alq two_stage", "alq server", "alq rounds", "alq layers two_stage", "amq paper", "smaq tensors"),
)
# What depends on the split or on who comes first, so that only the ranks are alike; workers of its own, for three
# ranks.
RANKS_ONLY: dict[str, dict] = {
    "hierarchical": {"method": "alq", "exchange.collective": "hierarchical", **LEVELS},
    "hierarchical local": {"method": "alq", "exchange.collective": "hierarchical", **LEVELS, **ROUNDS},
    "first of three": {"method": "qsgdinf", "exchange.collective": "server", "exchange.num_aggregate": 1},
    "first two of three": {"method": "qsgdinf", "exchange.collective": "server", "exchange.num_aggregate": 2},
}


def train(settings: dict, group: Any) -> dict[str, str]:
    """What the training ends with and what was measured (but times), as digests."""
    trainer = Trainer(resolving.resolve(BASE | settings), device=torch.device("cpu"), group=group)
    found, served = {}, settings.get("exchange.collective") == "server" and "exchange.local_steps" not in settings
    for step in range(SERVED if served else STEPS):
        if trainer.config["measure"]["every"] and step % trainer.config["measure"]["every"] == 0:
            measured = trainer.measure()
            found |= {f"{step} {tag}": repr(of) for tag, of in measured.scalars.items() if not tag.startswith("time/")}
            found |= {f"{step} {tag}": repr(of.tolist()) for tag, of in measured.histograms.items()}
        trainer.train_step()
    trainer.part()
    return found | digests(trainer)


def sent_in_a_step(group: Any) -> list[int]:
    """The message that the first worker encoded, and the bytes that this process handed to the network for it."""
    trainer = Trainer(resolving.resolve(BASE | {"method": "qsgdinf"}), device=torch.device("cpu"), group=group)
    trainer.train_step()
    return [trainer.totals.bytes, trainer.totals.network_bytes]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    result: dict[str, Any] = {f"{name} on 4": train(settings, dist.group.WORLD) for name, settings in TRAININGS.items()}
    os.environ["LOCAL_WORLD_SIZE"] = "2"  # as torchrun would say on the second of two machines
    result["sent"] = sent_in_a_step(dist.group.WORLD)
    for name in ("hierarchical", "hierarchical local"):
        result[f"{name} among 4"] = train(RANKS_ONLY[name], dist.group.WORLD)
    os.environ["LOCAL_WORLD_SIZE"] = "4"
    for size in (2, 3):
        group = dist.new_group(list(range(size)))
        if rank < size:
            result |= {f"{name} on {size}": train(TRAININGS[name], group) for name in FEWER}
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
