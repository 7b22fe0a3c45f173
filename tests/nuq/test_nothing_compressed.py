"""Where nothing is compressed, one warning says so, and nothing is sent for it; casts take small tensors, too."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import nuq
from tests.nuq.ranks import Ranks, second_group
from tests.nuq.small_training import backward, hooked, net, of_all, residuals, wrapped

SIZE = sum(p.numel() for p in net().parameters())  # 2365, of which one matrix has 1600


def one_warning(build):
    """What ``build`` gives, and the only warning that it gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built = build()
    (told,) = caught
    assert told.category is UserWarning
    return built, str(told.message)


def small_tensors(group):
    rank = dist.get_rank(group)
    exact = wrapped(group, net())
    backward(exact, rank, 0)
    ways: list[tuple[dict[str, Any], str]] = [
        ({"min_size": 2000}, "min_size=2000"),
        ({"min_size": 2000, "skip_1d": True}, "skip_1d=True"),
    ]
    for more, name in ways:
        for method in ("alq", "powersgd"):
            (model, state), told = one_warning(
                lambda method=method, more=more: hooked(group, net(), method=method, collective="gather", **more)
            )
            assert name in told and "min_size=0" in told
            for step in (0, 0, 1):
                model.zero_grad()
                backward(model, rank, step)
            assert state.transport.bytes_sent.keys() <= {"messages", "means"}
            assert not any(one.fitted for one in state._here.driver.compressors.adaptive)
            saved = state.state_dict()
            state.close()
            other, again = hooked(group, net(), method=method, collective="gather")
            again.load_state_dict(saved)  # of the same method, where it compresses
            backward(other, rank, 2)
            again.close()
    model = net()
    loop, told = one_warning(
        lambda: nuq.OuterLoop(
            model, torch.optim.SGD(model.parameters()), group=group, min_size=2000, collective="gather"
        )
    )
    assert "min_size=2000" in told and "min_size=0" in told
    for method in ("bf16", "supersgd"):  # nothing to say
        hooked(group, net(), method=method, min_size=2000, collective="gather")[1].close()
    hooked(group, net(), method="alq", min_size=2000, collective="dense", own=second_group(group))[1].close()
    loop.close()


def test_all_tensors_below_min_size(ranks):
    ranks.run(small_tensors, world=2)


def casts(group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    own = net()
    backward(own, rank, 0)
    rows = {name: of_all(group, p.grad) for name, p in own.named_parameters() if p.grad is not None}
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    for method, kind in kinds.items():
        ways: list[dict[str, Any]] = [{}, {"skip_1d": True}, {"feedback": "error"}]
        for more in ways:
            model, state = hooked(group, net(), method=method, min_size=1024, collective="gather", **more)
            backward(model, rank, 0)
            whole = {name for name, p in own.named_parameters() if p.numel() < 1024 and (p.dim() < 2 or len(more) == 0)}
            whole = {name for name in whole if more} | ({"0.weight", "4.weight"} if "feedback" in more else set())
            for name, p in model.module.named_parameters():
                cast = torch.float32 if name in whole else kind
                mean = sum(row.to(cast).float() for row in rows[name]) / world
                exact = method == "bf16" and "feedback" not in more
                torch.testing.assert_close(p.grad, mean, rtol=0 if exact else 1e-2, atol=0 if exact else 1e-5)
            if "feedback" in more:
                assert set(residuals(state)) == {"2.weight"}
            sent = state.bytes_sent
            if not more:
                assert 2 * SIZE < sent < 2 * SIZE + 200
            state.close()
    model = net()
    loop = nuq.OuterLoop(model, torch.optim.SGD(model.parameters()), group=group, method="bf16", every=1)
    loop.step()
    assert 2 * SIZE < loop.bytes_sent < 2 * SIZE + 200
    loop.close()


def test_casts_take_small_tensors(ranks):
    ranks.run(casts, world=2)


def one_rank_shards(group):
    del group
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("machines", "ranks"))
    for build in (
        lambda model: fully_shard(model, mesh=mesh),
        lambda model: fully_shard(model, mesh=mesh["ranks"]),
        lambda model: replicate(model, mesh=init_device_mesh("cpu", (2,))),
    ):
        model: Any = net()
        build(model[2])
        build(model)
        for compress in (nuq.compress_fsdp, nuq.compress_fsdp_weights):
            _, told = one_warning(lambda compress=compress, model=model: compress(model, "qsgdinf"))
            assert compress.__name__ in told and "one rank" in told
    model = net()
    fully_shard(model[2], mesh=mesh["ranks"])
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    _, told = one_warning(lambda: nuq.compress_fsdp(model, "qsgdinf"))
    assert "'2'" in told  # alone


def test_shards_of_one_rank():
    ranks = Ranks(2)  # of its own: groups that some of the ranks make alone are none that all can make afterwards
    try:
        ranks.run(one_rank_shards)
    finally:
        ranks.stop()
