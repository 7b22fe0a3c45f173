"""nuq.OuterLoop: local steps and an outer optimizer, beside NumPy followers of the papers' algorithms."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import nuq
from tests.nuq.small_training import assert_same_bits, backward, net, of_all, own_entry, parameters
from tests.tiers import few

SIZES, RATE, STEPS = {"first": 5, "second": 3, "third": 4}, 0.05, 200
WIDTH = sum(SIZES.values())


class _Linear(nn.Module):
    """A linear function whose weights lie in three parameters."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        start = torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed))
        for (name, _), piece in zip(SIZES.items(), start.split(list(SIZES.values())), strict=True):
            self.register_parameter(name, nn.Parameter(piece.clone()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cat(list(self.parameters()))


def _data(rank: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng([rank, step])
    x = drawn.standard_normal((8, WIDTH)).astype(np.float32)
    return x, (x @ np.linspace(-1 - rank, 1, WIDTH) + drawn.standard_normal(8)).astype(np.float32)


def _loop(group: dist.ProcessGroup, model: nn.Module, **settings: Any) -> nuq.OuterLoop:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return nuq.OuterLoop(model, optimizer, group=group, **{"min_size": 0, "timeout_s": 30.0} | settings)


def _train(loop: nuq.OuterLoop, rank: int, steps: range) -> None:
    for step in steps:
        x, y = map(torch.from_numpy, _data(rank, step))
        loop.inner_optimizer.zero_grad()
        (loop.model(x) - y).square().mean().backward()
        loop.step()


# --- the papers' algorithms ---------------------------------------------------------------------------------------


def diloco(world: int, every: int, lr: float, momentum: float, *, nesterov: bool) -> list[np.ndarray]:
    """DiLoCo's Algorithm 1 in float64: every worker's parameters after STEPS steps of SGD inside."""
    outer = _Linear(0)
    shared = np.concatenate([p.detach().numpy() for p in outer.parameters()]).astype(np.float64)
    velocity, workers = np.zeros(WIDTH), [shared.copy() for _ in range(world)]
    for step in range(STEPS):
        for rank, own in enumerate(workers):
            x, y = (part.astype(np.float64) for part in _data(rank, step))
            own -= RATE * 2 / len(y) * x.T @ (x @ own - y)
        if (step + 1) % every == 0:
            gradient = np.mean([shared - own for own in workers], axis=0)
            velocity = momentum * velocity + gradient
            shared = shared - lr * (gradient + momentum * velocity if nesterov else velocity)
            workers = [shared.copy() for _ in range(world)]
    return workers


def streaming(world: int, every: int, overlap: int, mixing: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Streaming DiLoCo's Algorithm 2: three fragments, each sent at a step of its own and taken over ``overlap`` later.

    Its outer optimizer: learning rate .7, Nesterov's momentum .9.  The last value: the model in which it ends, as what
    is on its way is taken over, and then the mean of each fragment that was trained since it was sent.
    """
    start = np.concatenate([p.detach().numpy() for p in _Linear(0).parameters()]).astype(np.float64)
    bounds = np.cumsum([0, *SIZES.values()])
    places = [slice(low, high) for low, high in itertools.pairwise(bounds)]
    shared, velocity, workers = start.copy(), np.zeros(WIDTH), [start.copy() for _ in range(world)]
    sent_after = [every // 3, 2 * every // 3, every]  # steps of a round
    on_the_way: dict[int, list[tuple[int, np.ndarray]]] = {}

    def take(number: int, gradient: np.ndarray, stays: float) -> None:
        place = places[number]
        velocity[place] = 0.9 * velocity[place] + gradient
        shared[place] -= 0.7 * (gradient + 0.9 * velocity[place])
        for own in workers:
            own[place] = stays * own[place] + (1 - stays) * shared[place]

    for step in range(1, STEPS + 1):
        for rank, own in enumerate(workers):
            x, y = (part.astype(np.float64) for part in _data(rank, step - 1))
            own -= RATE * 2 / len(y) * x.T @ (x @ own - y)
        for number, gradient in on_the_way.pop(step, ()):
            take(number, gradient, mixing)
        for number, place in enumerate(places):
            if step % every == sent_after[number] % every:
                gradient = np.mean([shared[place] - own[place] for own in workers], axis=0)
                on_the_way.setdefault(step + overlap, []).append((number, gradient))
    before_the_end = [own.copy() for own in workers]
    for number, gradient in itertools.chain(*on_the_way.values()):
        take(number, gradient, mixing)
    for number, place in enumerate(places):
        if (STEPS - sent_after[number]) % every:
            shared[place] = np.mean([own[place] for own in workers], axis=0)
    return before_the_end, shared


def sparse_loco(world: int, every: int, decay: float) -> list[np.ndarray]:
    """SparseLoCo: the two largest of every four coordinates of a move and its residual, in two bits; no momentum."""
    shared = np.concatenate([p.detach().numpy() for p in _Linear(0).parameters()]).astype(np.float64)
    residuals, workers = np.zeros((world, WIDTH)), [shared.copy() for _ in range(world)]
    for step in range(STEPS):
        for rank, own in enumerate(workers):
            x, y = (part.astype(np.float64) for part in _data(rank, step))
            own -= RATE * 2 / len(y) * x.T @ (x @ own - y)
        if (step + 1) % every == 0:
            sent = np.zeros((world, WIDTH))
            for rank, own in enumerate(workers):
                wanted = decay * residuals[rank] + shared - own
                for start in range(0, WIDTH, 4):
                    largest = start + np.argsort(-np.abs(wanted[start : start + 4]))[:2]
                    sent[rank, largest] = wanted[largest]
                there = np.flatnonzero(sent[rank])
                middle = np.abs(sent[rank, there]).mean()
                kinds = [(value > 0, abs(value) >= middle) for value in sent[rank, there]]
                means = {
                    kind: np.mean([sent[rank, at] for at, own in zip(there, kinds, strict=True) if own == kind])
                    for kind in kinds
                }
                sent[rank, there] = [means[kind] for kind in kinds]
                residuals[rank] = wanted - sent[rank]
            shared = shared - sent.mean(axis=0)
            workers = [shared.copy() for _ in range(world)]
    return workers


def follows_diloco(group, lr, momentum, nesterov):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    how = {"outer_lr": lr, "outer_momentum": momentum, "nesterov": nesterov}
    loop = _loop(group, _Linear(rank), method="supersgd", every=8, **how)  # rank 0's weights count
    _train(loop, rank, range(STEPS))
    expected = diloco(world, 8, lr, momentum, nesterov=nesterov)[rank]
    np.testing.assert_allclose(parameters(loop.model).numpy(), expected, rtol=2e-5, atol=2e-5)
    assert_same_bits(group, parameters(loop.model))  # a round has just ended
    assert loop.bytes_sent > STEPS // 8 * (world - 1) * 4 * WIDTH
    loop.close()


def follows_streaming(group, overlap):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    loop = _loop(group, _Linear(rank), method="supersgd", every=9, fragments=3, overlap=overlap, mixing=0.25)
    _train(loop, rank, range(STEPS))
    amid_a_round, end = streaming(world, 9, overlap, 0.25)
    np.testing.assert_allclose(parameters(loop.model).numpy(), amid_a_round[rank], rtol=2e-5, atol=2e-5)
    assert any(fragment.coming is not None for fragment in loop._fragments)
    loop.finish()
    np.testing.assert_allclose(parameters(loop.model).numpy(), end, rtol=2e-5, atol=2e-5)
    assert_same_bits(group, parameters(loop.model))
    loop.close()


def follows_sparse_loco(group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    sparse = {"method": "topk", "scope": "model", "bucket_size": 4, "ratio": 0.5, "values": "2bit", "decay": 0.95}
    loop = _loop(group, _Linear(rank), every=5, outer_lr=1.0, outer_momentum=0.0, nesterov=False, **sparse)
    _train(loop, rank, range(STEPS))
    np.testing.assert_allclose(parameters(loop.model).numpy(), sparse_loco(world, 5, 0.95)[rank], rtol=2e-4, atol=2e-4)
    loop.close()


@few(1, "world", [2, 3])
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (follows_diloco, (0.7, 0.9, True)),
        (follows_diloco, (1.0, 0.5, False)),
        (follows_streaming, (4,)),
        (follows_sparse_loco, ()),
    ],
    ids=["diloco", "diloco without Nesterov's", "streaming", "sparse_loco"],
)
def test_it_is_the_papers_algorithm(function, arguments, world, ranks):
    ranks.run(function, *arguments, world=world)


# --- any method ---------------------------------------------------------------------------------------------------

WAYS: list[dict[str, Any]] = [
    {"method": "alq", "bits": 4},
    {"method": "qsgdinf", "bits": 8, "collective": "two_stage"},
    {"method": "topk", "ratio": 0.1, "feedback": "error"},
    {"method": "dgc", "ratio": 0.1},
    {"method": "powersgd", "rank": 2},
    {"method": "eden", "bits": 4, "collective": "server"},
]


def _round(loop: nuq.OuterLoop, rank: int, steps: range) -> None:
    for step in steps:
        loop.inner_optimizer.zero_grad()
        backward(loop.model, rank, step)
        loop.step()


def any_method(group):
    rank = dist.get_rank(group)
    for way in WAYS:
        loop = _loop(group, net(rank), every=3, fragments=2, overlap=1, **way)
        _round(loop, rank, range(9))
        outer = torch.cat([fragment.outer for fragment in loop._fragments])
        assert_same_bits(group, outer)
        own = of_all(group, parameters(loop.model))
        assert not torch.equal(own[0], own[1])  # the ranks mix, and are amid a round
        start = parameters(net(0))
        assert 0 < float((outer - start).norm()) < 10, way
        loop.close()


def test_any_method_gives_all_ranks_the_same_outer_parameters(ranks):
    ranks.run(any_method, world=2)


def resumes(group):
    rank = dist.get_rank(group)
    for way in ({"method": "topk", "ratio": 0.1}, {"method": "alq", "bits": 3}):
        whole = _loop(group, net(0), every=4, fragments=2, overlap=3, **way)
        _round(whole, rank, range(9))  # a part is on its way
        saved = copy.deepcopy([own_entry(whole), whole.model.state_dict(), whole.inner_optimizer.state_dict()])
        assert saved[0]["pending"]
        _round(whole, rank, range(9, 20))
        again = _loop(group, net(5), every=4, fragments=2, overlap=3, **way)
        again.model.load_state_dict(saved[1])
        again.inner_optimizer.load_state_dict(saved[2])
        again.load_state_dict(saved[0])
        _round(again, rank, range(9, 20))
        assert torch.equal(parameters(again.model), parameters(whole.model)), way
        name = list(way)[1]
        if way["method"] == "topk" and rank == 1:
            with pytest.raises(ValueError, match="rank 0, loaded on rank 1"):
                again.load_state_dict({**saved[0], "rank": 0})
        for wrong, said in (
            ({"method": "sgd"}, "a state of method='sgd': this loop has method="),
            ({"settings": {}}, "a state of every=None: this loop has every=4"),
            (
                {"settings": {**saved[0]["settings"], name: "other"}},
                f"a state of {name}='other': this loop has {name}=",
            ),
            (
                {"settings": {**saved[0]["settings"], "feedback": "no"}},
                "a state of feedback='no': this loop has feedback=",
            ),
            ({"outer": {}}, "a state with nothing as outer of '0.weight': it is of shape"),
        ):
            with pytest.raises(ValueError, match=said):
                again.load_state_dict({**saved[0], **wrong})
        assert again.count == whole.count == 20
        for loop in (whole, again):
            loop.close()


def test_it_goes_on_amid_a_round_bit_by_bit(ranks):
    ranks.run(resumes, world=2)


# --- what goes wrong ----------------------------------------------------------------------------------------------


def mistakes(group):
    rank, model = dist.get_rank(group), net(0)
    with pytest.raises(ValueError, match="rank 0 has every=3 and rank 1 has every=4"):
        _loop(group, model, every=3 + rank)
    loop = _loop(group, model)
    loop.close()
    for call in (loop.step, loop.advance, loop.attach):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_mistake_is_one_sentence_on_all_ranks(ranks):
    ranks.run(mistakes, world=2)


def not_finite(group):
    rank = dist.get_rank(group)
    for settings in (
        *WAYS,
        {"method": "topk", "min_size": 1024},
        {"method": "alq", "scope": "model"},
    ):  # several in one
        loop = _loop(group, net(0), every=2, **settings)
        loop.advance()
        if rank == 1:
            with torch.no_grad():
                loop.model.get_parameter("2.weight")[0, 0] = float("nan")
        with pytest.raises(nuq.NonFiniteError, match=r"'2\.weight' on rank 1"):
            loop.advance()
        loop.close()


def test_a_move_that_is_not_finite_is_named_on_all_ranks(ranks):
    ranks.run(not_finite, world=2)


def _partly_frozen(seed: int) -> nn.Sequential:
    model = net(seed)
    model[0].requires_grad_(False)
    model[1] = nn.BatchNorm1d(40, affine=False)
    model.register_buffer("expanded", torch.full((3,), float(seed)).expand(4, 3))  # twelve elements in three places
    return model


def begins_alike(group):
    rank = dist.get_rank(group)
    loop = _loop(group, _partly_frozen(rank), every=3)
    assert torch.equal(parameters(loop.model), parameters(_partly_frozen(0)))
    loop.close()
    wider = _partly_frozen(0)
    wider[1] = nn.BatchNorm1d(40, affine=False, track_running_stats=rank == 0)
    with pytest.raises(ValueError, match=r"rank 0 has shapes of frozen parameters and buffers=\[\[40, 12\], "):
        _loop(group, wider)


def test_all_ranks_begin_with_the_frozen_parameters_of_the_first(ranks):
    ranks.run(begins_alike, world=2)


def behind_comes_back(group, steps):
    """A rank that begins anew goes on from the others' state, also where it is the first one."""
    rank = dist.get_rank(group)
    loop = _loop(group, _partly_frozen(0), every=3, method="topk", ratio=0.1)
    _round(loop, rank, range(steps))
    outer = torch.cat([fragment.outer for fragment in loop._fragments]).clone()
    local = parameters(loop.model)
    if rank == 0:
        loop.close()
        loop = _loop(group, _partly_frozen(9), every=3, method="topk", ratio=0.1)
    else:
        loop.attach(group)
        assert bool(loop._compressors.memories[0].memories) == (steps > 3)  # what its messages left out stays
        assert torch.equal(parameters(loop.model), local)
    assert (loop.count, loop.taken) == (steps, steps // 3)
    assert torch.equal(torch.cat([fragment.outer for fragment in loop._fragments]), outer)
    frozen = [p.detach() for p in loop.model.parameters() if not p.requires_grad]
    for tensor in (*frozen, *loop.model.buffers()):
        assert_same_bits(group, tensor)
    assert torch.equal(parameters(loop.model)[-outer.numel() :], outer) == (rank == 0)
    _round(loop, rank, range(steps, 9))
    assert_same_bits(group, parameters(loop.model))
    loop.close()


@pytest.mark.parametrize("steps", [2, 7])  # in the first round, and in a later one
def test_a_new_rank_goes_on_from_the_others(steps, ranks):
    ranks.run(behind_comes_back, steps, world=2)
