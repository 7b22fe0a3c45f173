"""The state of compressed FSDP2 through torch.distributed.checkpoint: the same bits, also on other numbers of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from tests.nuq.small_training import assert_same_bits, backward
from tests.nuq.test_fsdp import sharded

GRADIENTS: dict[str, Any] = {"method": "qsgdinf", "bits": 2, "bucket_size": 64}
WEIGHTS: dict[str, Any] = {"method": "qsgdinf", "bits": 3, "bucket_size": 64}


class Training:
    """A model under compressed FSDP2, its optimizer, and what is saved of both."""

    def __init__(self, group: dist.ProcessGroup, model: nn.Module, **gradients: Any) -> None:
        self.group, self.model = group, model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.gradients = nuq.compress_fsdp(self.model, timeout_s=30, **GRADIENTS, **gradients)
        self.weights = nuq.compress_fsdp_weights(self.model, timeout_s=30, **WEIGHTS)
        self.compression = nuq.FsdpState(self.model, [*self.gradients, *self.weights])

    def steps(self, *numbers: int) -> None:
        for step in numbers:
            self.optimizer.zero_grad()
            backward(self.model, dist.get_rank(self.group), step)
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "compression": self.compression}

    def save(self, folder: Path) -> None:
        save(self.state(), checkpoint_id=folder, process_group=self.group)

    def load(self, folder: Path) -> None:
        state = self.state()
        load(state, checkpoint_id=folder, process_group=self.group)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def saved(self, kind: str) -> dict[str, torch.Tensor]:
        """What is saved of the weights' replica or the gradients' memory, whole, by module and parameter."""
        of_modules = self.compression.state_dict()[kind]
        return {
            f"{module} {name}": shard.full_tensor()
            for module, saved in of_modules.items()
            for name, shard in saved.get("shards", {}).items()
        }

    def whole(self) -> torch.Tensor:
        return torch.cat([p.full_tensor().reshape(-1) for p in self.model.parameters()]).detach()  # type: ignore[attr-defined]


def even(group: dist.ProcessGroup) -> nn.Module:
    """A model of which all ranks have shards of the same length."""
    torch.manual_seed(0)
    model, mesh = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 6)), DeviceMesh.from_group(group, "cpu")
    for layer in (model[0], model[2]):  # the root has no parameters of its own
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def resumes(group, folder):
    """Without a memory of gradients a resumed training is the same bit by bit."""
    one = Training(group, even(group))
    one.steps(0, 1, 2)
    one.save(folder)
    one.steps(3, 4)
    other = Training(group, even(group))
    other.load(folder)
    other.steps(3, 4)
    assert torch.equal(one.whole(), other.whole())
    for mine, theirs in zip(one.weights[1:], other.weights[1:], strict=True):
        assert mine.step == theirs.step == 5
        assert mine._replica is not None and theirs._replica is not None
        assert torch.equal(mine._replica, theirs._replica)


def test_a_resumed_training_is_the_same(ranks, tmp_path):
    ranks.run(resumes, tmp_path, world=2)


def begins(group, folder):
    training = Training(group, sharded(group), feedback="average")
    fresh = Training(group, sharded(group), feedback="average")
    fresh.save(folder / "fresh")
    training.load(folder / "fresh")  # nothing is known yet
    assert all(each._replica is None for each in training.weights)
    training.steps(0, 1, 2)
    training.save(folder / "begun")
    return described(training)


def goes_on(group, folder, source, target):
    training = Training(group, sharded(group), feedback="average")
    training.load(folder / source)
    found = described(training)
    rows = [each._compressors.memories[0].memories[dist.get_rank(group)]["residuals"] for each in training.gradients]
    for row in (vector for by_name in rows for vector in by_name.values()):
        assert_same_bits(group, row)  # every rank goes on from the mean
    training.save(folder / target)
    training.steps(3, 4)
    assert_same_bits(group, training.whole())
    assert all(each.step == 5 for each in (*training.weights, *training.gradients))
    return found


def described(training: Training) -> dict[str, Any]:
    """The saved tensors as lists."""
    kinds = ("weights", "gradients")
    return {f"{kind} {name}": t.tolist() for kind in kinds for name, t in training.saved(kind).items()}


def test_states_of_two_and_of_four_ranks(ranks, tmp_path):
    (saved, same) = ranks.run(begins, tmp_path, world=2)
    assert saved == same and len(saved) == 12
    assert all(any(torch.tensor(values).reshape(-1).tolist()) for values in saved.values())
    for found in ranks.run(goes_on, tmp_path, "begun", "of four", world=4):
        assert {name for name in found if name.startswith("weights")} < set(found) == set(saved)
        for name, values in found.items():
            torch.testing.assert_close(torch.tensor(values), torch.tensor(saved[name]), rtol=1e-6, atol=1e-7)
            assert values == saved[name] or name.startswith("gradients")
    for found in ranks.run(goes_on, tmp_path, "of four", "of two", world=2):
        assert all(found[name] == saved[name] for name in saved if name.startswith("weights"))


def together(group: dist.ProcessGroup) -> nn.Module:
    """A model whose first and last layer FSDP gathers together."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.Linear(40, 6))
    mesh = DeviceMesh.from_group(group, "cpu")
    fully_shard([model[0], model[3]], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def saves_all(group, folder):
    """Modules that FSDP gathers together have one state, and a root that an evaluation left whole has one, too."""
    one = Training(group, together(group), feedback="average")
    assert [each.name for each in one.gradients] == [each.name for each in one.weights] == ["the root module", "0"]
    one.steps(0, 1, 2)
    with torch.no_grad():
        one.model(torch.ones(1, 12))
    one.compression = nuq.FsdpState(one.model, [*one.gradients, *one.weights])
    saved = one.saved("weights")
    of_root, of_both = ("2.weight", "2.bias"), ("0.weight", "0.bias", "3.weight", "3.bias")
    assert list(saved) == [f"the root module {name}" for name in of_root] + [f"0 {name}" for name in of_both]
    for name, row in saved.items():
        exact = one.model.state_dict()[name.split()[-1]].full_tensor()
        assert 0 < float((row - exact).norm()) < 0.1 * float(exact.norm())
    one.save(folder)
    other = Training(group, together(group), feedback="average")
    other.load(folder)
    assert all(torch.equal(row, saved[name]) for name, row in other.saved("weights").items())
    other.steps(3)
    assert_same_bits(group, other.whole())


def test_modules_that_are_gathered_together(ranks, tmp_path):
    ranks.run(saves_all, tmp_path, world=2)
