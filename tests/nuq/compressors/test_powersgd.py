"""PowerSGD: a worker's message, and the collective against an oracle in NumPy, in one process and in several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from nuq.compressors.message import parse
from nuq.errors import NonFiniteError
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.kernels.low_rank import start
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from tests.nuq.parts import flat, tiled
from tests.nuq.small_training import assert_same_bits, backward, descend, gradients, hooked, net, residuals

SEED = 5
SHAPES = {"conv": (12, 5, 3, 3), "bias": (12,), "fc": (20, 31), "tiny": (2, 2), "scale": ()}

NUMBERS = (
    2 * (12 + 45) + 2 * (20 + 31) + 12 + 4 + 1
)  # that one worker sends: two factors of rank 2, and what travels whole


def messages(num_workers: int) -> int:
    """The messages of one worker in both rounds: shards of 64 coordinates or more, one for each of the workers while
    there are some left.
    """
    left = 2 * (12 + 20) + 12 + 4 + 1
    return sum(
        len([shard for shard in tiled({"factors": size}).shards(num_workers) if shard.segments])
        for size in (left, NUMBERS - left)
    )


def powersgd(**settings: Any) -> Any:
    return METHODS["powersgd"].settings(**settings)


def compressor(**settings: Any) -> Any:
    return METHODS["powersgd"].load()(powersgd(**settings))


def workers(
    num: int = 3,
    group: Any = None,
    *,
    feedback: dict | None = None,
    momentum: float = 0.0,
    layers: Any = (),
    collective: str = "auto",
    **given,
) -> Workers:
    memory = Memory(Feedback(**(feedback or {})), momentum)
    shapes = {name: torch.Size(shape) for name, shape in SHAPES.items()}
    exchange = Exchange(collective=collective)
    return Workers(
        "powersgd",
        powersgd(**given),
        num,
        shapes,
        SEED,
        torch.device("cpu"),
        group,
        exchange,
        timeout_s=30,
        memory=memory,
        layers=layers,
    )


def gradient(worker: int, step: int) -> list[torch.Tensor]:
    """A common part of low rank and noise, as gradients have."""
    common, own = (torch.Generator().manual_seed(number) for number in (1000 + step, 100 * worker + step))
    made = []
    for shape in SHAPES.values():
        rows, columns = (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else (1, int(np.prod(shape)))
        low = torch.randn(rows, 2, generator=common) @ torch.randn(2, columns, generator=common)
        made.append((low + 0.3 * torch.randn(rows, columns, generator=own)).view(shape))
    return made


def exchanged(of: Workers, step: int) -> torch.Tensor:
    every = {worker: flat(gradient(worker, step)) for worker in of.hosted}
    return of.exchange(every, dict.fromkeys(every, 0.0), step).mean


# --- one worker's message ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 3, 7, 7), (200, 100), (33, 70)])
@pytest.mark.parametrize("values", ["fp32", "fp16"])
def test_a_message_is_a_projection(shape, values):
    x, of = torch.randn(shape, generator=torch.Generator().manual_seed(3)), compressor(rank=4, values=values)
    message = of.encode(x, Key(0, 0, 0, "p"))
    decoded = of.decode(parse(message.to_bytes())).double()
    assert message.num_bytes == 28 + 12 + (4 if values == "fp32" else 2) * 4 * (shape[0] + x.numel() // shape[0])
    error, wide = float((decoded - x.double().reshape(-1)).square().sum()), float(x.double().square().sum())
    assert error == pytest.approx(wide - float(decoded.square().sum()), rel=1e-3 if values == "fp16" else 1e-5)


def test_matrices_of_low_rank_arrive():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator) @ torch.randn(2, 80, generator=generator)
    of = compressor(rank=2)
    torch.testing.assert_close(
        of.decode(of.encode(x.view(60, 8, 10), Key(0, 0, 0))).view(60, 80), x, rtol=1e-4, atol=1e-4
    )


def test_iterations_come_nearer_to_the_best():
    x = torch.randn(80, 90, generator=torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(x.double())
    best = float(singular[4:].square().sum())
    errors = []
    for iterations in (1, 2, 8):
        of = compressor(rank=4, iterations=iterations)
        errors.append(float((of.decode(of.encode(x, Key(0, 0, 0))) - x.reshape(-1)).double().square().sum()))
    assert errors[0] > errors[1] > errors[2] > best > 0.95 * errors[2]


def test_what_saves_nothing_or_has_one_dimension_travels_whole():
    of = compressor(rank=2)
    for shape in ((50,), (2, 30), (4, 4), ()):
        x = torch.randn(shape)
        assert torch.equal(of.decode(of.encode(x, Key(0, 0, 0, "p"))), x.reshape(-1))
    piece = torch.randn(400)  # of a tensor that a collective cut
    assert of.encode(piece, Key(0, 0, 0, "p[64]", piece_of=2)).num_bytes == of.usual_bytes(400) < 400


# --- the collective ------------------------------------------------------------------------------------------------


def thin(columns: list[np.ndarray]) -> np.ndarray:
    """Gram-Schmidt, column after column."""
    made: list[np.ndarray] = []
    for column in columns:
        for before in made:
            column = column - (before @ column) * before
        made.append(column / np.linalg.norm(column))
    return np.stack(made, axis=1)


@pytest.mark.parametrize("warm", [True, False])
def test_against_an_oracle(warm):
    """The paper's algorithms 1 and 2 by NumPy in float64, from the same random starts."""
    num, rank = 3, 2
    of = workers(num, rank=rank, warm_start=warm)
    assert of.driver.collective_name == "power"
    errors: list[dict[str, np.ndarray]] = [{} for _ in range(num)]
    q: dict[str, np.ndarray] = {}
    for step in range(5):
        found = dict(
            zip(SHAPES, exchanged(of, step).split([int(np.prod(shape)) for shape in SHAPES.values()]), strict=True)
        )
        for number, (name, shape) in enumerate(SHAPES.items()):
            rows = [gradient(worker, step)[number].double().numpy() for worker in range(num)]
            if name not in ("conv", "fc"):
                np.testing.assert_allclose(found[name].numpy(), np.mean(rows, axis=0).reshape(-1), rtol=1e-5, atol=1e-6)
                continue
            wide = [row.reshape(shape[0], -1) + errors[worker].get(name, 0.0) for worker, row in enumerate(rows)]
            if not warm or name not in q:
                q[name] = start(wide[0].shape[1], rank, Key(SEED, step, 0, name)).double().numpy().T
            p = thin(list(np.mean([m @ q[name] for m in wide], axis=0).T))
            q[name] = np.mean([m.T @ p for m in wide], axis=0)
            out = p @ q[name].T
            for worker, m in enumerate(wide):
                errors[worker][name] = m - out
            np.testing.assert_allclose(
                found[name].numpy().reshape(out.shape), out, rtol=0, atol=1e-5 * np.abs(out).max()
            )
            kept = of.compressors.memories[0].memories[1]["residuals"][name].numpy()
            np.testing.assert_allclose(kept.reshape(out.shape), errors[1][name], rtol=0, atol=1e-5 * np.abs(out).max())


def test_a_state_goes_on_with_the_same_bits(tmp_path):
    of = workers()
    for step in range(3):
        exchanged(of, step)
    torch.save(of.state_dict(), tmp_path / "state.pt")
    rest = [exchanged(of, step) for step in (3, 4)]
    other = workers()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert all(torch.equal(exchanged(other, step), mean) for step, mean in zip((3, 4), rest, strict=True))
    assert other.compressor.starts.keys() == {"conv", "fc"}


@pytest.mark.parametrize(
    "how",
    [{"values": "fp16"}, {"iterations": 2}, {"scope": "model"}, {"feedback": {"kind": "momentum"}, "momentum": 0.9}],
)
def test_what_arrives_and_what_is_left_add_up(how):
    """The mean plus the workers' mean residual is the sum of all gradients' means so far, however they travelled."""
    of, total = workers(**how), torch.zeros(sum(int(np.prod(shape)) for shape in SHAPES.values()))
    wanted, momentum = total.clone(), [total.clone() for _ in range(3)]
    for step in range(4):
        total += exchanged(of, step)
        own = [flat(gradient(worker, step)) for worker in range(3)]
        momentum = [how.get("momentum", 0.0) * before + now for before, now in zip(momentum, own, strict=True)]
        wanted += torch.stack(momentum).mean(dim=0)
    left = torch.stack(
        [
            torch.cat([kept["residuals"][p.name] for p in of.layout.segments])
            for kept in of.compressors.memories[0].memories.values()
        ]
    )
    torch.testing.assert_close(total + left.mean(dim=0), wanted, rtol=0, atol=1e-4)


def test_a_step_of_zeros_does_not_end_it():
    of = workers(2)
    zeros = {worker: torch.zeros_like(flat(gradient(0, 0))) for worker in of.hosted}
    assert not of.exchange(zeros, dict.fromkeys(zeros, 0.0), 0).mean.any()
    assert float(exchanged(of, 1).norm()) > 1


def test_bytes_do_not_grow_with_the_workers():
    """P and Q to their owners and back, and the tensors that travel whole: some headers of 28 bytes beside."""
    for num in (3, 12):
        of = workers(num)
        every = {worker: flat(gradient(worker, 0)) for worker in of.hosted}
        took = of.exchange(every, dict.fromkeys(every, 0.0), 0)
        assert took.means_bytes < took.bytes_per_worker - took.means_bytes == 4 * NUMBERS + 28 * messages(num)


@pytest.mark.parametrize("num", [2, 5])
def test_factors_have_the_same_mean_however_they_travel(num):
    means = []
    for collective in ("gather", "two_stage", "auto"):
        of = workers(num, collective=collective)
        assert of.driver.collective_name == "power"
        means.append(torch.stack([exchanged(of, step) for step in range(3)]))
    assert torch.equal(means[0], means[1]) and torch.equal(means[0], means[2])


def test_overflow_is_named():
    of = workers(2)
    every = {worker: flat(gradient(worker, 0)) for worker in of.hosted}
    of.model_layout.views(every[1])[2].fill_(3e38)
    with pytest.raises(NonFiniteError, match=r"step 0.*'fc' on worker 1"):
        of.exchange(every, dict.fromkeys(every, 0.0), 0)
    assert of.compressor.starts == {} and not any(
        kept.any() for kept in of.compressors.memories[0].memories[0]["residuals"].values()
    )


def test_means_that_overflow_are_not_remembered():
    """Three gradients whose factors are finite and whose factors' sum is not: the steps after it go on as if it had not
    been.
    """
    of = workers(3)
    for step, size in enumerate((1.0, 1.5e38, 1.0)):
        draws = torch.Generator().manual_seed(step)
        common = [(torch.rand(shape, generator=draws) * 2 - 1) * size for shape in SHAPES.values()]
        every = {worker: flat(common) for worker in of.hosted}
        if size > 1:
            with pytest.raises(NonFiniteError, match="step 1"):
                of.exchange(every, dict.fromkeys(every, 0.0), step)
        else:
            assert of.exchange(every, dict.fromkeys(every, 0.0), step).mean.isfinite().all()
        memory = of.compressors.memories[0].memories
        assert all(kept.isfinite().all() for kinds in memory.values() for kept in kinds["residuals"].values())


@pytest.mark.slow
def test_memory_and_warm_start_beat_none():
    """A matrix that maps given inputs to given outputs, learned from four workers' gradients of rank 1."""
    generator = torch.Generator().manual_seed(0)
    inputs, aim = torch.randn(4, 32, 24, generator=generator), torch.randn(20, 24, generator=generator)

    def loss_after(steps: int, kind: str, warm: bool) -> float:
        of = Workers(
            "powersgd", powersgd(rank=1, warm_start=warm), 4, {"w": torch.Size([20, 24])}, SEED, torch.device("cpu"),
            exchange=Exchange(collective="auto"), memory=Memory(Feedback(kind)),
        )  # fmt: skip
        found = torch.zeros(20, 24)
        for step in range(steps):
            given = {w: flat([(found - aim) @ inputs[w].T @ inputs[w] / 32]) for w in range(4)}
            found -= 0.1 * of.exchange(given, dict.fromkeys(given, 0.0), step).mean.view(20, 24)
        return float((found - aim).square().sum())

    both, without, neither = (
        loss_after(120, "error", True),
        loss_after(120, "none", True),
        loss_after(120, "none", False),
    )
    assert both < 0.1 * without and both < 0.1 * neither


# --- several processes ---------------------------------------------------------------------------------------------


def in_processes(group):
    """Workers and the hook: the simulation's bits, named errors on all ranks, and a state that goes on."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    mixed: dict[str, Any] = {
        "layers": ["conv = qsgdinf scope=tensor bucket_size=64", "fc = powersgd rank=3 values=fp16"]
    }
    momentum: dict[str, Any] = {"feedback": {"kind": "momentum"}, "momentum": 0.5}
    cases: list[dict[str, Any]] = [{}, mixed, momentum, {"collective": "two_stage"}, {"scope": "model"}]
    for given in cases:
        for num in (world, world + 2):
            here, alone = workers(num, group, **given), workers(num, **given)
            for step in range(3):
                mean = exchanged(here, step)
                assert torch.equal(mean, exchanged(alone, step)), (given, num, step)
            ours, theirs = here.state_dict(), alone.state_dict()
            assert repr(ours) == repr(theirs)
    vectors = {rank: flat(gradient(rank, 0))}
    of, out = workers(world, group), torch.empty_like(vectors[rank])
    for at, name in ((545, "bias"), (560, "fc")):  # Workers looks before; a hook does not
        given = vectors[rank].clone()
        given[at] = torch.inf if rank == 1 else given[at]
        with pytest.raises(NonFiniteError, match=f"'{name}' on worker 1"):
            of.driver.mean({rank: given}, of.layout, Key(SEED, 0, rank), out)
    of.driver.mean(vectors, of.layout, Key(SEED, 0, rank), out)
    assert torch.equal(out, exchanged(workers(world), 0))
    sent = workers(world, group)
    exchanged(sent, 0)
    network = sent.transport.bytes_sent["messages"] + sent.transport.bytes_sent["means"]
    assert network <= 2 * 4 * NUMBERS + 28 * 2 * 2 * world, network
    model, state = hooked(group, net(), method="powersgd", rank=1)
    for step in range(3):
        descend(model, lambda step=step: backward(model, rank, step))
        assert_same_bits(group, gradients(model))
    assert state.collective == "power" and residuals(state)["0.weight"].any() and not residuals(state)["0.bias"].any()
    resumed, other = hooked(group, net(), method="powersgd", rank=1)
    resumed.module.load_state_dict(model.module.state_dict())
    other.load_state_dict(state.state_dict())
    for one in (model, resumed):
        one.zero_grad()
        backward(one, rank, 3)
    assert torch.equal(gradients(model), gradients(resumed))
    for one in (state, other):
        one.close()


@pytest.mark.slow
def test_real_processes_give_the_bits_of_the_simulation(ranks):
    ranks.run(in_processes, world=3)


def test_one_vector_of_all_has_a_length_that_no_shape_changes() -> None:
    """A layout may tell the shape of what is one vector (``nuq.all_reduce``); the table of a frame is made before."""
    made, layout = compressor(scope="model"), FlatLayout((Segment("tensor", 0, 1500, shape=(3, 500)),))
    codec, x = PayloadCodec(made), torch.randn(1500)
    payload, total = codec.encode(x, layout, Key(0, 0, 0)), torch.zeros(1500)
    codec.add(payload, layout, total)
    assert payload.numel() == codec.size(layout) and float(torch.linalg.vector_norm(x - total)) < 39
