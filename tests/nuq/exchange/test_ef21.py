"""EF21: the paper's algorithm in NumPy, followed for 200 steps; ranks, buckets and checkpoints change no bit of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from nuq.compressors.feedback import CompressedDifferences
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from settings import resolving
from tests.nuq.small_training import assert_same_bits, backward, descend, gradients, hooked, net, own_entry, parameters

CPU = torch.device("cpu")
WORKERS, SIZE, KEPT, STEPS = 4, 60, 6, 200
RATE = np.float32(0.05)
DRAWN = np.random.default_rng(3)
TARGETS = DRAWN.normal(size=(WORKERS, SIZE)).astype(np.float32)
CURVATURES = DRAWN.uniform(0.5, 2, size=(WORKERS, SIZE)).astype(np.float32)  # f_i(x) = sum c (x - target)^2 / 2


def gradient(worker: int, x: np.ndarray) -> np.ndarray:
    return CURVATURES[worker] * (x - TARGETS[worker])


def top(vector: np.ndarray, kept: int) -> np.ndarray:
    """The paper's example of a contractive compressor: the largest coordinates, the others zero."""
    chosen = np.argsort(-np.abs(vector), kind="stable")[:kept]
    sent = np.zeros_like(vector)
    sent[chosen] = vector[chosen]
    return sent


def ef21() -> list[np.ndarray]:
    """The iterates of Algorithm 2; g_i^0 = C(grad f_i(x^0)), as the paper's experiments have it."""
    x = np.zeros(SIZE, np.float32)
    estimates = [top(gradient(worker, x), KEPT) for worker in range(WORKERS)]
    mean = np.sum(estimates, axis=0) * np.float32(1 / WORKERS)
    iterates = []
    for _ in range(STEPS):
        x = x - RATE * mean
        iterates.append(x)
        sent = [top(gradient(worker, x) - estimates[worker], KEPT) for worker in range(WORKERS)]
        estimates = [estimate + own for estimate, own in zip(estimates, sent, strict=True)]
        total = np.zeros(SIZE, np.float32)
        for own in sent:
            total = total + own
        mean = total * np.float32(1 / WORKERS) + mean
    return iterates


SERVER = pytest.param("server", marks=pytest.mark.slow)


def simulated(group: Any = None, method: str = "topk", *, both: bool = False, **exchange: Any) -> Workers:
    values = {"ratio": KEPT / SIZE} if method == "topk" else {}
    memory = Memory(Feedback(kind="ef21", both=both))
    shapes, settings = {"x": torch.Size([SIZE])}, METHODS[method].settings(**values)
    how = {"exchange": Exchange(**exchange), "memory": memory}
    return Workers(method, settings, WORKERS, shapes, 1, CPU, group, **how)


def descended(workers: Workers, steps: range, x: np.ndarray) -> list[np.ndarray]:
    iterates = []
    for step in steps:
        own = {worker: torch.from_numpy(gradient(worker, x)) for worker in workers.hosted}
        mean = workers.exchange(own, dict.fromkeys(own, 0.0), step).mean
        x = x - RATE * mean.numpy()
        iterates.append(x)
    return iterates


@pytest.mark.parametrize("collective", ["gather", pytest.param("two_stage", marks=pytest.mark.slow), SERVER])
def test_the_papers_algorithm(collective: str) -> None:
    """Bit for bit; TopK's means are exact, so that encoding them again changes nothing."""
    workers = simulated(collective=collective, both=collective != "gather")
    ours = descended(workers, range(STEPS), np.zeros(SIZE, np.float32))
    for step, (x, theirs) in enumerate(zip(ours, ef21(), strict=True)):
        assert x.tobytes() == theirs.tobytes(), step
    best = (CURVATURES * TARGETS).sum(axis=0) / CURVATURES.sum(axis=0)
    assert np.abs(ours[-1] - best).max() < 1e-3 < 0.5 < np.abs(best).max()


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["two_stage", SERVER])
def test_errors_of_means_do_not_add_up(collective: str) -> None:
    """Means in four bits: with a memory the optimum is reached all the same, and else it is not."""
    best, found = (CURVATURES * TARGETS).sum(axis=0) / CURVATURES.sum(axis=0), {}
    for both in (True, False):
        workers = simulated(method="qsgdinf", collective=collective, both=both)
        last = descended(workers, range(120), np.zeros(SIZE, np.float32))[-1]
        found[both] = np.abs(last - best).max()
    assert found[True] < 0.01 < 0.1 < found[False]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_every_message_brings_the_estimate_nearer(name: str, scale: float) -> None:
    """Around every method, also those that are not contractive by themselves."""
    known = METHODS[name].settings.__dataclass_fields__
    given = {key: value for key, value in {"bucket_size": 128, "threshold": 0.0}.items() if key in known}
    around = CompressedDifferences(METHODS[name].load()(METHODS[name].settings(**given)), {"p": 1024})
    x = scale * torch.randn(1024, generator=torch.Generator().manual_seed(3))
    far = [float(x.double().norm())]
    for step in range(4):
        around.encode(x, Key(1, step, 0).of("p"))
        far.append(float((x.double() - around.memories[0]["estimates"]["p"].double()).norm()))
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(far)) and far[-1] < far[0]


def test_a_checkpoint_goes_on_with_the_same_bits() -> None:
    first = simulated()
    before = descended(first, range(20), np.zeros(SIZE, np.float32))[-1]
    saved = first.state_dict()
    after = descended(first, range(20, 40), before)
    second = simulated()
    second.load_state_dict(saved)
    assert np.array_equal(descended(second, range(20, 40), before), after)
    assert saved["memories"][0]["kinds"] == ["estimates"] and saved["memories"][0]["means"]["model"].any()


def on_ranks(group: dist.ProcessGroup) -> list[bytes]:
    workers = simulated(group)
    x = descended(workers, range(30), np.zeros(SIZE, np.float32))[-1]
    state = workers.state_dict()["memories"][0]
    tensors = [state["workers"][worker]["estimates"]["model"] for worker in range(WORKERS)] + [state["means"]["model"]]
    return [x.tobytes(), *(tensor.numpy().tobytes() for tensor in tensors)]


@pytest.mark.slow
def test_processes_give_the_bits_of_the_simulation(ranks: Any) -> None:
    alone = simulated()
    x = descended(alone, range(30), np.zeros(SIZE, np.float32))[-1]
    state = alone.state_dict()["memories"][0]
    for here in ranks.run(on_ranks, world=2):
        assert here[0] == x.tobytes()
        assert here[1:-1] == [
            state["workers"][worker]["estimates"]["model"].numpy().tobytes() for worker in range(WORKERS)
        ]
        assert here[-1] == state["means"]["model"].numpy().tobytes()


def of_machines(group: dist.ProcessGroup, method: str, kind: str) -> None:
    """Two machines of two ranks, whose memories are the machines'."""

    def made() -> Workers:
        memory = Memory(Feedback(kind=kind, both=kind == "ef21"))
        exchange, shapes = Exchange(collective="hierarchical"), {"x": torch.Size([SIZE])}
        return Workers(
            method, METHODS[method].settings(), WORKERS, shapes, 1, CPU, group, exchange=exchange, memory=memory
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_WORLD_SIZE", "2")
        first, second = made(), made()
    before = descended(first, range(5), np.zeros(SIZE, np.float32))[-1]
    second.load_state_dict(first.state_dict())
    for after, again in zip(descended(first, range(5, 9), before), descended(second, range(5, 9), before), strict=True):
        assert after.tobytes() == again.tobytes()
    assert_same_bits(group, torch.from_numpy(after))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), [("qsgdinf", "ef21"), ("topk", "error"), ("casq", "error")])
def test_machines_resume(ranks: Any, method: str, kind: str) -> None:
    ranks.run(of_machines, method, kind, world=4)


def in_hook(group: dist.ProcessGroup) -> None:
    """The mean of what was sent so far; small vectors travel whole; a state saved by rank goes on exactly."""
    settings = {"method": "topk", "ratio": 0.1, "feedback": "ef21", "collective": "gather", "min_size": 41}
    rank, model, state = dist.get_rank(group), *hooked(group, net(), **settings)
    for step in range(4):
        descend(model, lambda step=step: backward(model, rank, step))
    assert_same_bits(group, parameters(model))
    (own,) = state._here.driver.compressors.memories
    assert isinstance(own, CompressedDifferences)
    assert own.means.keys() == own.memories[rank]["estimates"].keys() == {"0.weight", "2.weight", "4.weight"}
    for name, mean in own.means.items():
        total = own.memories[rank]["estimates"][name].clone()
        dist.all_reduce(total, group=group)
        torch.testing.assert_close(mean, total / 2)
        assert torch.equal(dict(model.module.named_parameters())[name].grad.reshape(-1), mean)
    saved, weights = own_entry(state), {k: v.clone() for k, v in model.module.state_dict().items()}
    descend(model, lambda: backward(model, rank, 4))
    again, other = hooked(group, net(1), **settings)
    again.module.load_state_dict(weights)
    other.load_state_dict(saved)
    descend(again, lambda: backward(again, rank, 4))
    assert torch.equal(gradients(model), gradients(again))
    damaged = {**saved, "coders": {**saved["coders"], "memories": [{**saved["coders"]["memories"][0], "means": {}}]}}
    damaged["coders"]["memories"][0]["means"] = {"0.weight": torch.zeros(3)}
    with pytest.raises(ValueError, match=r"'0\.weight'"):
        other.load_state_dict(damaged)
    for each in (state, other):
        each.close()


def test_the_hook(ranks: Any) -> None:
    ranks.run(in_hook, world=2)


def skipped(group: dist.ProcessGroup) -> None:
    """A step that a gradient scaler skips leaves estimates and their mean as they were."""
    model, state = hooked(group, net(), method="topk", feedback="ef21", collective="gather", on_non_finite="propagate")
    backward(model, 0, 0)
    before = own_entry(state)["coders"]["memories"]
    with torch.no_grad():
        model.module[0].weight[0, 0] = torch.inf
    backward(model, 0, 1)
    assert not torch.isfinite(gradients(model)).all()
    assert repr(own_entry(state)["coders"]["memories"]) == repr(before)
    state.close()


def test_a_skipped_step(ranks: Any) -> None:
    ranks.run(skipped, world=1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "supersgd"}, ["feedback.kind='ef21'", "no effect", "leave nothing out", "legal here: auto, none"]),
        (
            {"method": "topk", "exchange.collective": "auto"},
            ["feedback.kind='ef21'", "would add up", "feedback.both=True", "exchange.collective=gather"],
        ),
        ({"method": "powersgd"}, ["powersgd averages", "exchange.collective=server"]),
        ({"method": "topk", "feedback.clip_norm": 1}, ["feedback.clip_norm=1.0", "no effect", "kind='momentum'"]),
        ({"method": "topk", "trajectory": "sgd", "measure.every": 1}, ["feedback.kind='ef21'", "trajectory='sgd'"]),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        resolving.resolve({"feedback.kind": "ef21", **given})
    assert all(word in str(error.value) for word in words), error.value
