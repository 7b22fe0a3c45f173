"""Groups of ranks that train parts of a model, saved under one name: each goes on from its own states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_flatten

import nuq
from tests.nuq.small_training import backward, gradients, hooked, net, own_entry, residuals
from tests.nuq.test_outer_fsdp import _loop, _mesh, _model, _sharded, _train

TOPK: dict[str, Any] = {"method": "topk", "ratio": 0.1, "collective": "gather"}
OUTER: dict[str, Any] = {"method": "topk", "ratio": 0.1, "every": 4, "fragments": 2, "overlap": 3}


def assert_equal(found: Any, expected: Any) -> None:
    """The same numbers, texts and tensors, bit for bit."""
    (one, kind), (other, wanted) = tree_flatten(found), tree_flatten(expected)
    assert kind == wanted
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs


def of_stages(everyone, folder: str) -> None:
    """Two stages of a pipeline, of two ranks each, whose parameters have the same names and sizes."""
    rank = dist.get_rank(everyone)
    stages: list[Any] = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    own = stages[rank // 2]
    three: Any = dist.new_group([0, 1, 2])
    model, state = hooked(own, net(), **TOPK)
    for step in range(2):
        model.zero_grad()
        backward(model, rank, step)
    kept = {name: t.clone() for name, t in residuals(state).items()}
    save({"compression": state}, checkpoint_id=folder)
    states = nuq.saved_states(folder)
    assert set(states) == {f"rank{number}" for number in range(4)}
    before = {f"rank{number % 2}": ({**one, "group": []},) for number, (one,) in enumerate(states.values())}
    for (one,) in before.values():
        del one["group"]  # as 3902daa2 wrote them, of the second stage alone
    model.zero_grad()
    backward(model, rank, 2)
    for how in ("dcp", "all", "own", "before") if rank > 1 else ("dcp", "all", "own", "dcp"):
        other, again = hooked(own, net(), **TOPK)
        if how == "dcp":
            load({"compression": again}, checkpoint_id=folder, process_group=own)
        else:
            again.load_state_dict({"all": states, "own": states[f"rank{rank}"][0], "before": before}[how])
        assert again.step == 2
        assert_equal(residuals(again), kept)
        backward(other, rank, 2)
        assert_equal(gradients(other), gradients(model))
        again.close()
    wrong: Any
    for wrong in ([1], ["0"], 3, [10**400]):
        with pytest.raises(ValueError, match="a state with group="):
            state.load_state_dict({"rank0": ({**states["rank0"][0], "group": wrong},)})
    state.close()
    if rank < 3:
        _, state = hooked(three, net(), **TOPK)
        said = "0, 1 and 2, 3"
        with pytest.raises(ValueError, match=said):
            state.load_state_dict(states)
        assert state.step == 0
        chosen = {name: states[name] for name in ("rank2", "rank3")}
        state.load_state_dict(chosen)
        (one, other) = (
            next(iter(own["coders"]["memories"][0]["workers"].values()))["residuals"] for (own,) in chosen.values()
        )
        for name, mean in residuals(state).items():
            torch.testing.assert_close(mean, (one[name] + other[name]) / 2)
        state.close()


def test_stages_of_a_pipeline(ranks: Any, tmp_path: Path) -> None:
    ranks.run(of_stages, str(tmp_path / "saved"), world=4)


def of_shards(everyone, folder: str) -> None:
    """Outer loops over the replicas of each shard, and then of shards whose replicas lie on other ranks."""
    rank, mesh = dist.get_rank(everyone), _mesh()
    loop = _loop(mesh, _sharded(mesh, _model(0)), **OUTER)
    _train(loop, rank, range(6))
    state = {"model": loop.model.state_dict(), "outer": loop}
    save(state, checkpoint_id=folder)
    own = own_entry(loop)
    again = _loop(mesh, _sharded(mesh, _model(1)), **OUTER)
    state = {"model": again.model.state_dict(), "outer": again}
    load(state, checkpoint_id=folder)
    assert_equal(own_entry(again), own)
    states = nuq.saved_states(folder, "outer")
    every: list[Any] = [None] * 4
    dist.all_gather_object(every, own)
    assert_equal([one for (one,) in states.values()], every)
    turned = DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("machines", "ranks"))
    other = _loop(turned, _sharded(turned, _model(1)), **OUTER)
    other.load_state_dict(states)
    theirs = states[f"rank{[0, 2, 1, 3][rank]}"][0]  # has the same shard
    found = own_entry(other)
    assert found["group"] == [[0, 1], [2, 3]][rank // 2]
    for key in ("outer", "momentum"):
        assert_equal(found[key], theirs[key])
    for each in (loop, again, other):
        each.close()


def test_outer_loops_over_the_replicas_of_shards(ranks: Any, tmp_path: Path) -> None:
    ranks.run(of_shards, str(tmp_path / "saved"), world=4)
