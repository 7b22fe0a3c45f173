"""nuq.OuterLoop over FSDP2, on two machines of two ranks: what it computes on shards is DiLoCo on whole parameters."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from tests.nuq.small_training import assert_same_bits, inputs, net, own_entry
from tests.tiers import few

RATE = 0.1


def _mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("machines", "ranks"))


def _model(seed: int) -> nn.Sequential:
    """Rows that two ranks share unevenly (5), and of which the second one has none (1); the first layer is frozen."""
    model = nn.Sequential(*net(seed), nn.Tanh(), nn.Linear(5, 1))
    model[0].requires_grad_(False)
    model.register_buffer("shift", torch.full((3,), float(seed)))
    return model


def _sharded(mesh: DeviceMesh, model: nn.Module) -> Any:
    fully_shard(model[2], mesh=mesh["ranks"])  # type: ignore[index]
    fully_shard(model, mesh=mesh["ranks"])
    return model


def _loop(mesh: DeviceMesh, model: nn.Module, **settings: Any) -> nuq.OuterLoop:
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=RATE, momentum=0.5)
    group = mesh.get_group("machines")
    return nuq.OuterLoop(model, optimizer, group=group, **{"min_size": 0, "timeout_s": 20.0} | settings)


def _train(loop: nuq.OuterLoop, rank: int, steps: range) -> None:
    for step in steps:
        loop.inner_optimizer.zero_grad()
        loop.model(inputs(rank, step)).square().mean().backward()
        loop.step()


def _whole(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.full_tensor().detach() for name, p in model.named_parameters()}  # type: ignore[attr-defined]


def _diloco(steps: int, every: int, *, fragments: int) -> dict[str, Tensor]:
    """The outer parameters after all, by plain PyTorch: two models, each of whose steps averages two gradients.

    With two fragments the large matrix is sent amid a round, and the rest at its end.
    """
    outer = _model(0)
    names = [name for name, p in outer.named_parameters() if p.requires_grad]
    machines = [copy.deepcopy(outer) for _ in range(2)]
    inner = [torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5) for model in machines]
    momentum = torch.optim.SGD([outer.get_parameter(name) for name in names], lr=0.7, momentum=0.9, nesterov=True)
    since = dict.fromkeys(names, 0)

    def mean_move(name: str) -> Tensor:
        shared, (one, other) = outer.get_parameter(name), (model.get_parameter(name) for model in machines)
        return ((shared - one) + (shared - other)).detach() * 0.5

    def take(name: str) -> None:
        momentum.zero_grad()
        outer.get_parameter(name).grad = mean_move(name)
        momentum.step()
        since[name] = 0
        for model in machines:
            model.get_parameter(name).data.copy_(outer.get_parameter(name))

    for step in range(1, steps + 1):
        for machine, (model, optimizer) in enumerate(zip(machines, inner, strict=True)):
            optimizer.zero_grad()
            for rank in (2 * machine, 2 * machine + 1):
                (model(inputs(rank, step - 1)).square().mean() / 2).backward()
            optimizer.step()
        for name in names:
            since[name] += 1
            at = every // 2 if fragments == 2 and name == "2.weight" else 0
            if step % every == at:
                take(name)
    for name in (name for name in names if since[name]):
        outer.get_parameter(name).data -= mean_move(name)
    return {name: p.detach() for name, p in outer.named_parameters()}


def follows(group, fragments):
    rank, mesh = dist.get_rank(group), _mesh()
    model = _sharded(mesh, _model(rank // 2))  # the first machine's weights count
    loop = _loop(mesh, model, method="supersgd", every=4, fragments=fragments)
    assert torch.equal(model.shift, torch.zeros(3))
    _train(loop, rank, range(9))
    loop.finish()
    found = _whole(model)
    for name, expected in _diloco(9, 4, fragments=fragments).items():
        assert torch.equal(found[name], expected), name
        assert_same_bits(group, found[name])
    sent = loop.bytes_sent
    loop.finish()
    assert loop.bytes_sent == sent + 8  # the number of steps, to the other machine's rank
    loop.close()


@few(1, "fragments", [2, 1])
def test_shards_follow_diloco_on_whole_parameters(fragments, ranks):
    ranks.run(follows, fragments, world=4)


def quantizes(group):
    """A round's messages are those of the local shards: bit for bit as encoded by hand."""
    rank, mesh = dist.get_rank(group), _mesh()
    between, shards = mesh.get_group("machines"), {}
    model = _sharded(mesh, _model(0))
    how = {"bits": 4, "bucket_size": 64, "rounding": "stochastic"}
    loop = _loop(mesh, model, method="qsgdinf", every=2, outer_lr=1.0, outer_momentum=0.0, nesterov=False, **how)
    local = {name: p.detach().to_local() for name, p in model.named_parameters() if p.requires_grad}
    start = {name: own.clone() for name, own in local.items()}
    _train(loop, rank, range(1))
    loop.inner_optimizer.zero_grad()
    model(inputs(rank, 1)).square().mean().backward()
    loop.inner_optimizer.step()
    ends = {name: own.clone() for name, own in local.items()}
    loop.advance()
    compressor = METHODS["qsgdinf"].load()(METHODS["qsgdinf"].settings(**how))
    for name, own in ends.items():
        rows = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(rows, own, group=between)
        total = torch.zeros(own.numel())
        for worker, row in enumerate(rows):
            key = Key(0, 2, worker, name, workers=2)
            total += compressor.decode(compressor.encode((start[name] - row).reshape(-1), key))
        shards[name] = start[name] - (total * 0.5).view(own.shape)
        assert torch.equal(local[name], shards[name]), name
    assert (0 in {own.numel() for own in local.values()}) == bool(rank % 2)
    for more in ({"method": "alq", "bits": 4, "scope": "model"}, {"method": "powersgd"}, {"method": "bf16"}):
        other = _loop(mesh, _sharded(mesh, _model(1)), every=3, fragments=2, overlap=1, **more)
        _train(other, rank, range(7))
        other.finish()
        for of_parameter in _whole(other.model).values():
            assert_same_bits(group, of_parameter)
        other.close()
    loop.close()


def test_messages_are_those_of_local_shards(ranks):
    ranks.run(quantizes, world=4)


def resumes(group):
    rank, mesh = dist.get_rank(group), _mesh()
    way: dict[str, Any] = {"method": "topk", "ratio": 0.1, "every": 4, "fragments": 2, "overlap": 3}
    whole = _loop(mesh, _sharded(mesh, _model(0)), **way)
    _train(whole, rank, range(6))
    parts = (whole, whole.model, whole.inner_optimizer)
    state, model, optimizer = copy.deepcopy([own_entry(parts[0]), *(part.state_dict() for part in parts[1:])])
    assert state["pending"]
    assert state["outer"]["6.weight"].shape == (1 - rank % 2, 5)
    _train(whole, rank, range(6, 11))
    whole.finish()
    again = _loop(mesh, _sharded(mesh, _model(7)), **way)
    again.model.load_state_dict(model)
    again.inner_optimizer.load_state_dict(optimizer)
    with pytest.raises(ValueError, match=r"'2\.weight'"):
        theirs = {name: {**place, "shard": [1 - rank % 2]} for name, place in state["shards"].items()}
        again.load_state_dict({**state, "shards": theirs})
    again.load_state_dict(state)
    _train(again, rank, range(6, 11))
    again.finish()
    for name, p in _whole(again.model).items():
        assert torch.equal(p, _whole(whole.model)[name]), name
    again.close()
    if rank >= 2:  # a new machine goes on from the other one
        whole.close()
        whole = _loop(mesh, _sharded(mesh, _model(5)), **way)
    else:
        whole.attach(mesh.get_group("machines"))
    assert whole.count == 11
    for p in _whole(whole.model).values():
        assert_same_bits(group, p)
    whole.finish()  # all have finished
    _train(whole, rank, range(11, 13))
    whole.finish()
    for p in _whole(whole.model).values():
        assert_same_bits(group, p)
    whole.close()


def test_states_and_new_machines(ranks):
    ranks.run(resumes, world=4)


def refuses(group):
    mesh = _mesh()
    model: Any = _sharded(mesh, _model(0))
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=RATE)
    for wrong in (None, mesh.get_group("ranks")):
        with pytest.raises(ValueError, match=r"^group.*'2\.weight'"):
            nuq.OuterLoop(model, optimizer, group=wrong, timeout_s=20)
    with pytest.raises(ValueError, match=r"'2\.weight'"):
        nuq.CompressionState(model, group=group)
    with torch.no_grad():
        model(inputs(0, 0))  # leaves the root's parameters whole
    nuq.OuterLoop(model, optimizer, group=mesh.get_group("machines"), min_size=0, timeout_s=20).close()


def test_groups_of_other_shards_are_refused(ranks):
    ranks.run(refuses, world=4)
