"""Started by torchrun in test_splits: trains every case on all ranks, some on fewer, and writes digests of the result."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import args
from nuq.registry import METHODS
from train.trainer import Trainer

STEPS = 20
BASE = {"data": "cifar10", "model": "resnet8", "stand_in": True, "batch_size": 1, "workers": 4}
UPDATES = {"method.update_at": [4, 11], "method.update_every": 0, "method.num_samples": 3}


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
    every["qsgdinf sgd trajectory"] = {"method": "qsgdinf", "trajectory": "sgd", "measure.every": 10, "measure.num_samples": 2}
    return every


FEWER = ["sgd", "supersgd", "amq", "trn", "alq fresh tensor", "qsgdinf sgd trajectory"]  # also on two and three ranks


def digest(trainer: Trainer, measured: list[dict[str, float]]) -> str:
    """Parameters, batch-norm buffers, levels, and what was measured (but for times)."""
    trainer.sync_buffers()
    state = hashlib.sha256()
    for tensor in [*trainer.model.state_dict().values(), *trainer.workers.compressor.state_dict().values()]:
        state.update(tensor.numpy().tobytes() if isinstance(tensor, torch.Tensor) else repr(tensor).encode())
    numbers = [{tag: value for tag, value in values.items() if not tag.startswith("time/")} for values in measured]
    state.update(json.dumps(numbers).encode())
    return state.hexdigest()


def train(settings: dict, group: Any) -> str:
    trainer = Trainer(args.resolve(BASE | settings), device=torch.device("cpu"), group=group)
    measured = []
    for step in range(STEPS):
        if trainer.config["measure"]["every"] and step % trainer.config["measure"]["every"] == 0:
            measured.append(trainer.measure())
        trainer.train_step()
    return digest(trainer, measured)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    result = {f"{name} on 4": train(settings, dist.group.WORLD) for name, settings in cases().items()}
    for size in (2, 3):
        group = dist.new_group(list(range(size)))
        if rank < size:
            result |= {f"{name} on {size}": train(cases()[name], group) for name in FEWER}
    (folder / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
