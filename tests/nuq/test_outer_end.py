"""The end of an outer loop: one model on all ranks, and states from before it that go on as if it had not ended."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist

import nuq
from tests.nuq.small_training import assert_same_bits, backward, net, of_all, parameters
from tests.tiers import few

WAYS: list[dict[str, Any]] = [
    {"method": "qsgdinf", "every": 3},
    {"method": "topk", "ratio": 0.1, "every": 4, "fragments": 2},
    {"method": "alq", "every": 4, "overlap": 2},
    {"method": "powersgd", "rank": 2, "every": 4, "fragments": 2, "overlap": 3, "collective": "two_stage"},
]


STEPS_TOLD = 8  # bytes: to the other rank, the number of local steps


def _loop(group: dist.ProcessGroup, **way: Any) -> nuq.OuterLoop:
    model = net(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return nuq.OuterLoop(model, optimizer, group=group, min_size=0, timeout_s=30.0, **way)


def _train(loop: nuq.OuterLoop, rank: int, steps: range) -> None:
    for step in steps:
        loop.inner_optimizer.zero_grad()
        backward(loop.model, rank, step)
        loop.step()


def ends(group, way):
    rank = dist.get_rank(group)
    loop = _loop(group, **way)
    loop.finish()  # before any step there is nothing to do
    assert loop.bytes_sent == STEPS_TOLD
    _train(loop, rank, range(8))
    own = of_all(group, parameters(loop.model))
    assert not torch.equal(own[0], own[1])
    saved = copy.deepcopy([each.state_dict() for each in (loop, loop.model, loop.inner_optimizer)])
    loop.finish()
    end = parameters(loop.model)
    assert_same_bits(group, end)
    assert torch.equal(end, torch.cat([fragment.outer for fragment in loop._fragments]))
    sent = loop.bytes_sent
    loop.finish()
    assert loop.bytes_sent == sent + STEPS_TOLD and torch.equal(parameters(loop.model), end)
    finished = copy.deepcopy([each.state_dict() for each in (loop, loop.model)])
    _train(loop, rank, range(8, 10))  # a new round
    loop.finish()
    assert_same_bits(group, parameters(loop.model))
    assert not torch.equal(parameters(loop.model), end)
    loop.close()

    whole, resumed, again = (_loop(group, **way) for _ in range(3))
    _train(whole, rank, range(17))
    for part, state in zip((resumed, resumed.model, resumed.inner_optimizer), saved, strict=True):
        part.load_state_dict(state)
    _train(resumed, rank, range(8, 17))
    assert torch.equal(parameters(resumed.model), parameters(whole.model))
    for each in (whole, resumed):
        each.finish()
    assert torch.equal(parameters(resumed.model), parameters(whole.model))
    for part, state in zip((again, again.model), finished, strict=True):
        part.load_state_dict(state)
    again.finish()  # nothing is left, as the state knows
    assert torch.equal(parameters(again.model), end) and again.bytes_sent == STEPS_TOLD
    for part, state in zip((again, again.model, again.inner_optimizer), saved, strict=True):
        part.load_state_dict(
            {key: of for key, of in state.items() if key not in ("taken_at", "shards")}
        )  # an older one
    again.finish()
    assert torch.equal(parameters(again.model), end)
    for each in (whole, resumed, again):
        each.close()


def ends_with_the_mean(group: dist.ProcessGroup, settings: dict[str, Any]) -> None:
    loop = _loop(group, **settings)
    _train(loop, dist.get_rank(group), range(7))
    mean = parameters(loop.model)
    dist.all_reduce(mean, group=group)
    loop.finish()
    torch.testing.assert_close(parameters(loop.model), mean / dist.get_world_size(group), rtol=1e-6, atol=1e-6)
    loop.close()


@pytest.mark.parametrize(
    "settings", [{"method": "topk", "ratio": 0.02, "every": 64}, {"method": "qsgdinf", "every": 4}]
)
def test_ranks_end_with_the_mean_of_their_models(settings: dict[str, Any], ranks: Any) -> None:
    """However sparse messages are: what the last one would leave out no later one brings."""
    ranks.run(ends_with_the_mean, settings, world=2)


@few(2, "way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_ranks_end_with_one_model(way, ranks):
    ranks.run(ends, way, world=2)


def at_the_end_of_a_round(group):
    loop = _loop(group, method="qsgdinf", every=4)
    _train(loop, dist.get_rank(group), range(8))
    sent, model = loop.bytes_sent, parameters(loop.model)
    assert_same_bits(group, model)
    loop.finish()
    assert loop.bytes_sent == sent + STEPS_TOLD and torch.equal(parameters(loop.model), model)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.finish()


def test_nothing_travels_where_a_round_has_just_ended(ranks):
    ranks.run(at_the_end_of_a_round, world=2)


def fails_amid_it(group):
    """An exchange of the end fails on one rank: the others have the mean, and all end with one model."""
    rank = dist.get_rank(group)
    loop = _loop(group, method="topk", ratio=0.1, every=4, fragments=2)
    _train(loop, rank, range(7))
    real, calls = loop._whole_mean, []

    def lost(*what: Any) -> torch.Tensor:
        found = real(*what)
        calls.append(1)
        if rank == 1 and len(calls) == 2:
            raise nuq.RankLost("rank 2 of 3 is gone")
        return found

    loop._whole_mean = lost  # type: ignore[method-assign]
    if rank == 1:
        with pytest.raises(nuq.RankLost):
            loop.finish()
    else:
        loop.finish()
    loop.attach(group)
    loop.finish()
    assert_same_bits(group, parameters(loop.model))
    loop.close()


def test_an_end_that_broke_off_is_finished(ranks):
    ranks.run(fails_amid_it, world=2)
