"""The state between steps: levels that all ranks agree on, residuals, and a state that goes on where it was saved."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import nuq
from nuq.exchange.compressor_map import CompressorMap
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.levels.level_sets import Levels
from nuq.simulation import Workers
from tests.nuq.small_training import (
    assert_same_bits,
    backward,
    descend,
    gradients,
    hooked,
    inputs,
    net,
    of_all,
    own_entry,
    parameters,
    residuals,
    wrapped,
)
from tests.tiers import few

SEVERAL: dict[str, Any] = {"bucket_cap_mb": 0.002}
RESTARTED = {
    "feedback": {"method": "qsgdinf", "bits": 2, "bucket_size": 64, "feedback": "error"},
    "feedback on two stages": {"method": "trn", "bucket_size": 64, "feedback": "error", "collective": "two_stage"},
    "adaptive between its updates": {
        "method": "alq",
        "bucket_size": 64,
        "update_at": [2, 6],
        "num_samples": 3,
        "update_every": 0,
    },
    "both, coded": {
        "method": "amq",
        "bucket_size": 64,
        "update_at": [1, 6],
        "num_samples": 4,
        "feedback": "error",
        "coding": "rans",
    },
}


def steps(model, rank, numbers):
    for step in numbers:
        descend(model, lambda step=step: backward(model, rank, step))


def begin(settings):
    return nn.Linear(12, 40, bias=False) if settings.get("collective") == "two_stage" else net()


def restart(group, settings, way):
    """Two stages cut DDP's buckets, whose layout begins anew with the process: there the bits are the same for a single
    parameter.
    """
    rank = dist.get_rank(group)
    model, state = hooked(group, begin(settings), ddp=SEVERAL, **settings)
    steps(model, rank, range(5))
    weights = {name: value.clone() for name, value in model.module.state_dict().items()}
    if way == "pickle":
        saved = pickle.dumps(state)
    else:
        file = io.BytesIO()
        torch.save(state.state_dict(), file)  # plain numbers and tensors
        saved = file.getvalue()
    steps(model, rank, range(5, 9))
    expected = parameters(model)
    state.close()

    begun = begin(settings)
    begun.load_state_dict(weights)
    again = wrapped(group, begun, **SEVERAL)
    if way == "pickle":
        other = pickle.loads(saved)
        with pytest.raises(ValueError, match="no model"):
            other.submit(None)
        assert own_entry(other)["step"] == 5  # it may be saved again as it is
        other.attach(again)
    else:
        other = nuq.CompressionState(again, min_size=0, timeout_s=60.0, **settings)
        other.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True))
    again.register_comm_hook(other, nuq.compress_hook)
    assert other.step == 5
    steps(again, rank, range(5, 9))
    assert torch.equal(parameters(again), expected)
    assert_same_bits(group, expected)
    other.close()


@pytest.mark.parametrize("way", ["pickle", "state_dict"])
@few(1, "settings", RESTARTED.values(), ids=RESTARTED.keys())
def test_save_restart_and_continue_equals_not_stopping(settings, way, ranks):
    ranks.run(restart, settings, way, world=2)


BOTH: dict[str, Any] = {
    "method": "qsgdinf",
    "bits": 2,
    "second_bits": 2,
    "bucket_size": 64,
    "feedback": "error",
    "both": True,
}


@pytest.mark.parametrize("collective", ["two_stage", "server"])
def test_a_state_keeps_the_memory_of_means_too(collective, ranks):
    ranks.run(restart, {**BOTH, "collective": collective}, "state_dict", world=2)


class Backwards(nn.Module):
    """Layers that are used in another order than DDP first expects."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.last, self.middle, self.first = nn.Linear(40, 5), nn.Linear(40, 40), nn.Linear(12, 40)

    def forward(self, x):
        return self.last(self.middle(self.first(x).relu()).relu())


def residuals_stay(group):
    """DDP lays its buckets out anew after the first step; what a message left out stays with its parameter."""
    rank = dist.get_rank(group)
    settings: dict[str, Any] = {
        "method": "qsgdinf",
        "bits": 2,
        "bucket_size": 64,
        "feedback": "error",
        "collective": "gather",
    }
    several, first = hooked(group, Backwards(), ddp=SEVERAL, **settings)
    single, second = hooked(group, Backwards(), ddp={"bucket_cap_mb": 50}, **settings)
    layouts = []
    for step in range(4):
        for model in (several, single):
            descend(model, lambda model=model, step=step: backward(model, rank, step))
        layouts.append(set(first._here.plans))
        assert torch.equal(gradients(several), gradients(single)), step
    assert layouts[0] < layouts[1] == layouts[3] and len(layouts[1]) > 2
    ours, theirs = (residuals(state) for state in (first, second))
    assert ours.keys() == theirs.keys() == dict(several.module.named_parameters()).keys()
    for name, residual in ours.items():
        assert torch.equal(residual, theirs[name]) and residual.norm() > 0
    for state in (first, second):
        state.close()


def test_residuals_survive_that_ddp_rebuilds_its_buckets(ranks):
    ranks.run(residuals_stay, world=2)


# --- levels ---

LEVELS: dict[str, Any] = {"bucket_size": 64, "update_at": [2, 4], "num_samples": 2, "update_every": 0}


def levels_agree(group, settings):
    """The updates of all ranks are one process's, who merges the same statistics in rank order."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    model, state = hooked(group, net(), ddp=SEVERAL, **settings)
    levels, seen = state._here.driver.levels, []
    update = levels.update

    def watched(which):
        if not which:
            return
        rows = of_all(group, state._here.driver.levels.every[0].rows(torch.device("cpu"))[dist.get_rank(group)])
        assert not any(torch.equal(rows[0], row) for row in rows[1:])
        alone = CompressorMap(state.settings.method, state.settings.of_method, state.settings.exchange.second_bits)
        merged = state._here.driver.levels.every[0].empty()
        for row in rows:
            merged.merge(Statistics.from_array(row.numpy(), merged.num_components))
        before = [compressor.levels.values for compressor in state._here.driver.compressors.adaptive]
        update(which)
        for one, want, old in zip(state._here.driver.compressors.adaptive, alone.adaptive, before, strict=True):
            want.update(merged)
            assert np.array_equal(one.levels.values, want.levels.values)
            assert not np.array_equal(one.levels.values, old)
            assert_same_bits(group, torch.from_numpy(one.levels.values.copy()))
        seen.append(state.step)

    levels.update = watched  # type: ignore[method-assign]
    steps(model, rank, range(6))
    assert seen == [2, 4]
    assert state.transport.bytes_sent["levels"] == 2 * (world - 1) * 8 * len(
        state._here.driver.levels.every[0].empty().to_array()
    )
    state.close()


@few(1, "world", [2, 3])
@few(2, "settings", [{"method": "alq"}, {"method": "amq_n"}, {"method": "alq_g", "fit": "mixture"}], ids=str)
def test_all_ranks_take_the_levels_of_one_process(settings, world, ranks):
    ranks.run(levels_agree, settings | LEVELS | {"collective": "two_stage"}, world=world)


def hook_is_simulation(group):
    """One parameter, so that DDP's order is the simulation's: the same bits, through two updates of the levels."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    for collective in ("gather", "two_stage"):
        local = nn.Linear(12, 40, bias=False)
        settings: dict[str, Any] = {"method": "alq", "collective": collective} | LEVELS
        with torch.no_grad():
            local.weight.copy_(torch.arange(480.0).view(40, 12) / 500)
        model, state = hooked(group, local, seed=3, **settings)
        alone = Workers(
            "alq",
            state.settings.of_method,
            world,
            {"weight": torch.Size([40, 12])},
            3,
            torch.device("cpu"),
            exchange=state.settings.exchange,
        )
        for step in range(6):
            own = []
            for worker in range(world):
                weight = local.weight.detach().clone().requires_grad_()
                nn.functional.linear(inputs(worker, step), weight).square().mean().backward()
                assert weight.grad is not None
                own.append(weight.grad.reshape(-1))
            if alone.levels.every[0].next_update(step) == step:
                alone.update_levels()
            if alone.levels.every[0].collects(step + 1):
                alone.observe(dict(enumerate(own)), step)
            mean = alone.exchange(dict(enumerate(own)), dict.fromkeys(range(world), 0.0), step).mean
            model.zero_grad()
            backward(model, rank, step)
            assert torch.equal(gradients(model), mean), (collective, step)
        assert np.array_equal(
            state._here.driver.compressors.adaptive[0].levels.values, alone.compressors.adaptive[0].levels.values
        )
        state.close()


@pytest.mark.parametrize("world", [2, 3])
def test_the_hook_gives_the_bits_of_the_simulation(world, ranks):
    ranks.run(hook_is_simulation, world=world)


def tampered(group):
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), method="alq", bucket_size=64, debug=True, collective="gather")
    backward(model, rank, 0)
    if rank == 1:
        (compressor, *_) = state._here.driver.compressors.adaptive
        values = compressor.levels.values.copy()
        values[1] *= 0.999
        compressor.set_levels(Levels(values))
    with pytest.raises(RuntimeError, match="step 1"):
        backward(model, rank, 1)


def test_debug_mode_names_a_rank_with_other_levels(ranks):
    ranks.run(tampered, world=3)


def same_keys(group):
    """Roundings depend on seed, step, rank and parameter, not on how DDP cuts."""
    rank = dist.get_rank(group)
    found = []
    for seed, options in ((0, SEVERAL), (0, {"bucket_cap_mb": 50}), (1, SEVERAL)):
        model, state = hooked(
            group, net(), ddp=options, method="qsgdinf", bucket_size=64, collective="gather", seed=seed
        )
        steps(model, rank, range(3))
        found.append(parameters(model))
        state.close()
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    assert Key(0, 1, 0) != Key(0, 1, 1)


def test_roundings_do_not_depend_on_ddps_buckets(ranks):
    ranks.run(same_keys, world=2)
