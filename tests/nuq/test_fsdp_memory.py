"""compress_fsdp(feedback="average") where parameters of a module take turns in having gradients."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.fsdp_memory import reduced_now
from nuq.kernels.spec import Key
from nuq.registry import METHODS

ROWS, WIDTH = 5, 12  # rows that two ranks share unevenly
QUANTIZER: dict[str, Any] = {"bits": 2, "bucket_size": 32}
MEMORY: dict[str, Any] = {"feedback": "average", "beta": 0.3, "timeout_s": 30}
TURNS = ["both", "one", "other", "one", "other", "both", "other"]  # reset_every=4: at "both" and the second "other"


class Experts(nn.Module):
    """Two experts of equal sizes, of which a step may use one alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = (nn.Parameter(torch.randn(ROWS, WIDTH)) for _ in range(2))
        self.uses = "both"

    def forward(self, x: Tensor) -> Tensor:
        used = {"one": [self.one], "other": [self.other], "both": [self.one, self.other]}[self.uses]
        return sum(((p * x).sum() for p in used), torch.zeros(()))


def gradient(rank: int, step: int) -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(100 * rank + step))


def take(model: Any, rank: int, step: int) -> None:
    model.uses = TURNS[step]
    model.zero_grad()
    model(gradient(rank, step)).backward()


def experts(mesh: DeviceMesh, reset_every: int = 4, **more: Any) -> tuple[Any, Any]:
    model = Experts()
    fully_shard(model, mesh=mesh)
    (scatter,) = nuq.compress_fsdp(model, "qsgdinf", reset_every=reset_every, **QUANTIZER, **MEMORY, **more)
    return model, scatter


def follows(group, reset_every):
    """LoCo's recursion by parameter, in NumPy: a memory that a step does not need stays as it is."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    model, _ = experts(DeviceMesh.from_group(group, "cpu"), reset_every)
    compressor = METHODS["qsgdinf"].load()(METHODS["qsgdinf"].settings(**QUANTIZER))
    rows = -(-ROWS // world)  # of a shard, padded
    errors = np.zeros((world, 2, world * rows, WIDTH))  # by rank and expert
    for step, turn in enumerate(TURNS):
        if reset_every and step % reset_every == 0:
            errors[:] = 0
        used = {"one": [0], "other": [1], "both": [0, 1]}[turn]
        take(model, rank, step)
        mean = np.zeros((2, world * rows, WIDTH))
        for r in range(world):
            padded = np.zeros((world * rows, WIDTH))
            padded[:ROWS] = gradient(r, step).numpy()
            for owner in range(world):
                mine = slice(owner * rows, (owner + 1) * rows)
                wanted = np.stack([padded[mine] + errors[r, expert, mine] for expert in used])
                size = wanted.size
                key = Key(0, step, r, f"the root module[{owner * size}]", piece_of=2, workers=world)
                decoded = compressor.decode(compressor.encode(torch.from_numpy(wanted).float().view(-1), key)).double()
                sent = decoded.numpy().reshape(wanted.shape)
                sent = sent * np.clip((wanted * sent).sum() / (sent * sent).sum(), 0, 1)
                for at, expert in enumerate(used):
                    errors[r, expert, mine] = 0.7 * errors[r, expert, mine] + 0.3 * (wanted[at] - sent[at])
                    mean[expert, mine] += sent[at] / world
        for number, p in enumerate((model.one, model.other)):
            if number in used:
                found = p.grad.full_tensor().numpy()
                np.testing.assert_allclose(found, mean[number, :ROWS], rtol=1e-4, atol=1e-5, err_msg=f"{step} {turn}")
            else:
                assert p.grad is None
    assert np.abs(errors).max() > 0.1


@pytest.mark.parametrize("reset_every", [0, 4])
def test_a_parameter_without_a_gradient_keeps_its_memory(reset_every: int, ranks: Any) -> None:
    ranks.run(follows, reset_every, world=2)


def of_machines(group) -> None:
    """The memory between machines stays with its parameter, too: of equal turns each ends as if it were alone."""
    rank, mesh = dist.get_rank(group), init_device_mesh("cpu", (2, 2), mesh_dim_names=("machines", "ranks"))
    way = {"between": mesh.get_group("machines"), "bits_between": 1, "reset_every": 0}
    model, scatter = experts(mesh["ranks"], **way)
    take(model, rank, 1)
    kept = remembered(scatter)
    take(model, rank, 2)
    middle = remembered(scatter)
    assert all(not torch.equal(mine, theirs) for mine, theirs in zip(kept, middle, strict=True))
    size = -(-ROWS // 2) * WIDTH
    for memory, was in zip((*scatter._memories, *scatter.between._memories), kept, strict=True):
        (aside,) = memory._aside.values()
        assert torch.equal(aside.reshape(-1), was) and aside.shape[1] == size
    take(model, rank, 0)
    both = [vector.view(-1, 2 * size) for vector in remembered(scatter)]
    assert [len(vector) for vector in both] == [2, 1]
    assert not any(memory._aside for memory in (*scatter._memories, *scatter.between._memories))


def remembered(scatter: Any) -> list[Tensor]:
    """What the last vectors have as their memories: inside the machine and between."""
    every = (*scatter._compressors.memories, *scatter.between._compressors.memories)
    return [v.clone() for one in every for of in one.memories.values() for v in of["residuals"].values()]


def test_the_memory_between_machines(ranks: Any) -> None:
    ranks.run(of_machines, world=4)


def saves(group, folder: Path) -> None:
    """A state has the memory of all parameters, though the last step used one alone; saving changes nothing."""
    rank, mesh = dist.get_rank(group), DeviceMesh.from_group(group, "cpu")
    (model, scatter), (other, _) = experts(mesh, 0), experts(mesh, 0)
    state = nuq.FsdpState(model, [scatter])
    for step in range(5):
        take(model, rank, step)
        take(other, rank, step)
    save({"compression": state}, checkpoint_id=folder, process_group=group)
    saved = state.state_dict()["gradients"]["the root module"]
    shards = {name: shard.full_tensor() for name, shard in saved["shards"].items()}
    assert saved["known"] and all(bool(t.any()) for t in shards.values())
    take(model, rank, 5)
    take(other, rank, 5)
    assert all(
        torch.equal(p.grad.to_local(), q.grad.to_local())
        for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )
    fresh, again = experts(mesh, 0)
    of_fresh = nuq.FsdpState(fresh, [again])
    load({"compression": of_fresh}, checkpoint_id=folder, process_group=group)
    found = of_fresh.state_dict()["gradients"]["the root module"]["shards"]
    for name, mean in shards.items():
        torch.testing.assert_close(found[name].full_tensor(), mean)
    model.one.requires_grad_(False)  # frozen and thawed
    take(model, rank, 6)
    model.one.requires_grad_(True)
    take(model, rank, 5)


def test_a_state_has_the_memory_of_all_parameters(ranks: Any, tmp_path: Path) -> None:
    ranks.run(saves, tmp_path / "saved", world=2)


def test_gradients_are_freed_at_once_though_the_callers_frame_is_read():
    class Part:
        padded_sharded_param_size = torch.Size([3])

    freed: list[Any] = []

    def reduce_scatter() -> Any:
        return reduced_now(3)

    def foreach_reduce() -> bool:  # as FSDP's function has them
        fsdp_params, gradients = [Part()], torch.ones(3)
        freed.append(weakref.ref(gradients))
        return reduce_scatter() == fsdp_params

    gc.disable()
    try:
        assert foreach_reduce() and freed[0]() is None
    finally:
        gc.enable()
