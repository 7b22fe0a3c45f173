"""Every collective leaves all ranks with the same bits: those of the simulation,
where one process hosts all workers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nuq.errors import MessageError, NonFiniteError
from nuq.exchange.collective_factory import build, fewest_bytes
from nuq.exchange.collectives import two_stage
from nuq.exchange.collectives.collective import Collective, ExchangeStats, WorkerPlacement
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.simulation import Workers
from tests.nuq.parts import tiled
from tests.nuq.small_training import assert_same_bits, of_all

SHAPES = ({"a": 1, "b": 63, "c": 64, "d": 65, "e": 130}, {"one": 1}, {"short": 63}, {"long": 1500})
SEED = 11


def settings_of(name: str, **given: Any) -> Any:
    schema = METHODS[name].settings
    legal = {item.name for item in dataclasses.fields(schema)}
    values = {"bucket_size": 128 if name in ("eden", "drive") else 32, "scope": "tensor"} | given
    return schema(**{key: value for key, value in values.items() if key in legal})


def gradient(worker: int, step: int, sizes: dict[str, int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * worker + step)
    return torch.randn(sum(sizes.values()), generator=generator) * 10.0 ** (step - 1)


def made(name: str, group: Any, **given: Any) -> tuple[Collective, Transport]:
    compressors = CompressorMap(name, settings_of(name, **given.pop("settings", {})), given.get("second_bits", 4))
    transport = Transport(group, timeout_s=30)
    per_machine = given.pop("per_machine", 0)
    placement = WorkerPlacement.of(transport.world, transport.world)
    return build(compressors, Exchange(**given), transport, placement, ExchangeStats(), per_machine=per_machine)[
        1
    ], transport


def simulated(
    name: str, exchange: Exchange, workers: int, sizes: dict[str, int], step: int, **given: Any
) -> torch.Tensor:
    shapes = {name: torch.Size([size]) for name, size in sizes.items()}
    seed = given.pop("seed", SEED)
    alone = Workers(name, settings_of(name, **given), workers, shapes, seed, torch.device("cpu"), exchange=exchange)
    every = {worker: gradient(worker, step, sizes) for worker in alone.hosted}
    return alone.exchange(every, dict.fromkeys(every, 0.0), step).mean


def equal_simulation(group, cases):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    for name, given, collective in cases:
        exchange = Exchange(collective=collective)
        compressors = CompressorMap(name, settings_of(name, **given), exchange.second_bits)
        transport = Transport(group, timeout_s=30)
        workers = 1 if compressors.single_worker else world
        _, by = build(compressors, exchange, transport, WorkerPlacement.of(workers, world), ExchangeStats())
        for step, sizes in enumerate(SHAPES):
            mean = torch.full((sum(sizes.values()),), torch.nan)
            by.mean({rank: gradient(rank, step, sizes)}, tiled(sizes), Key(SEED, step, rank), mean)
            assert torch.equal(mean, simulated(name, exchange, world, sizes, step, **given)), (
                name,
                given,
                collective,
                step,
            )


def every_case() -> list[tuple[str, dict[str, Any], str]]:
    cases: list[tuple[str, dict[str, Any], str]] = [
        (name, {}, collective)
        for name in METHODS
        for collective in (["gather"] if METHODS[name].single_worker else ["gather", "two_stage"])
    ]
    cases += [(name, {}, "server") for name in ("supersgd", "alq", "trn", "drive")]
    coded = [("alq", "rans"), ("qsgd", "huffman"), ("eden", "rans"), ("bf16", "rans")]
    rounded = [("alq", {}), ("qsgdinf", {"rotation": "hadamard"}), ("natural", {}), ("fp8", {}), ("block8", {})]
    cases += [
        (name, {"rounding": "correlated", **given}, collective)
        for name, given in rounded
        for collective in ("gather", "two_stage", "server")
    ]
    return cases + [
        (name, {"coding": coding}, collective)
        for name, coding in coded
        for collective in ("gather", "two_stage", "server")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_real_processes_give_the_bits_of_the_simulation(world, ranks):
    cases = every_case()
    ranks.run(equal_simulation, cases if world == 3 else cases[world % 2 :: 2], world=world)


def in_rounds(group):
    """A vector that is cut into several rounds, one of which meets a coordinate that is not finite."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    sizes, shard = {"first": 3000, "last": 2001}, two_stage.SHARD
    try:
        for name in ("qsgdinf", "ecdq"):
            for length in (256, shard):
                two_stage.SHARD = length
                by, transport = made(name, group, collective="two_stage")
                vector, mean = gradient(rank, 0, sizes), torch.empty(5001)
                for bad in (False, True, False):
                    given = vector.clone()
                    if bad and rank == 1:
                        given[4000] = torch.inf
                    try:
                        by.mean({rank: given}, tiled(sizes), Key(SEED, 0, rank), mean)
                        assert not bad
                        assert torch.equal(mean, simulated(name, Exchange(collective="two_stage"), world, sizes, 0))
                    except NonFiniteError as error:
                        assert bad and "'last' on worker 1" in str(error), error
                    transport.numbers([int(bad)], "control")  # nothing is left on the way
                    by.mean({rank: given.nan_to_num(0, 0, 0)}, tiled(sizes), Key(SEED, 1, rank), mean)
                    assert_same_bits(group, mean)
                by.mean(
                    {rank: vector}, tiled(sizes), Key(SEED, 0, rank), vector
                )  # the mean may take the gradient's place
                assert torch.equal(vector, simulated(name, Exchange(collective="two_stage"), world, sizes, 0))
    finally:
        two_stage.SHARD = shard


@pytest.mark.slow
def test_long_vectors_go_in_rounds(ranks):
    ranks.run(in_rounds, world=3)


def hosts_of_several(group):
    """Five workers on three ranks."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    sizes, placement = SHAPES[0], WorkerPlacement.of(5, world)
    for name in ("alq", "ecdq"):
        for collective in ("gather", "two_stage", "server"):
            compressors, transport = CompressorMap(name, settings_of(name), 4), Transport(group, timeout_s=30)
            _, by = build(compressors, Exchange(collective=collective), transport, placement, ExchangeStats())
            mean = torch.empty(sum(sizes.values()))
            by.mean({w: gradient(w, 1, sizes) for w in placement.shares[rank]}, tiled(sizes), Key(SEED, 1, 0), mean)
            assert torch.equal(mean, simulated(name, Exchange(collective=collective), 5, sizes, 1)), (name, collective)


def test_ranks_may_host_several_workers(ranks):
    ranks.run(hosts_of_several, world=3)


def machines(group):
    """Two machines of two ranks: exact methods give the mean, the others a mean of two messages; all ranks the same
    bits.
    """
    rank, sizes = dist.get_rank(group), {"a": 700, "b": 65}
    parts = tiled(sizes)
    for name, given in (
        ("supersgd", {}),
        ("alq", {}),
        ("ecdq", {}),
        ("drive", {}),
        ("qsgdinf", {"bits": 8, "coding": "huffman"}),
    ):
        by, _ = made(name, group, collective="hierarchical", per_machine=2, second_bits=8, settings=given)
        out, vector = torch.empty(765), gradient(rank, 1, sizes)
        by.mean({rank: vector}, parts, Key(SEED, 1, rank), out)
        assert_same_bits(group, out)
        exact = torch.stack(of_all(group, vector)).mean(dim=0)
        error = float((out - exact).norm() / exact.norm())
        assert error < {"supersgd": 1e-6, "qsgdinf": 0.02}.get(name, 1.0), (name, error)
        inner: Any = by
        sent = [each.bytes_sent for each in inner.inner_transports]
        transport = [each for each in sent if each["messages"] + each["means"]]
        assert len(transport) == (rank % 2 == 0)  # messages are the first ranks' alone
        bad = torch.full_like(vector, torch.nan) if rank == 3 else vector
        with pytest.raises(NonFiniteError, match="machine 1"):
            by.mean({rank: bad}, parts, Key(SEED, 2, rank), out)
        by.mean({rank: vector}, parts, Key(SEED, 1, rank), out)  # and all is well again
        assert_same_bits(group, out)


def test_machines_of_several_ranks(ranks):
    ranks.run(machines)


def not_finite(group):
    rank, sizes = dist.get_rank(group), SHAPES[0]
    for name in ("supersgd", "alq", "ecdq", "eden"):
        for collective in ("gather", "two_stage", "server"):
            by, _ = made(name, group, collective=collective)
            mean, vector = torch.empty(323), gradient(rank, 0, sizes)
            if rank == 2:
                vector[130] = torch.nan  # of d
            with pytest.raises(NonFiniteError, match="'d' on worker 2"):
                by.mean({rank: vector}, tiled(sizes), Key(SEED, 0, rank), mean)
            by.mean({rank: gradient(rank, 0, sizes)}, tiled(sizes), Key(SEED, 0, rank), mean)
            assert torch.equal(mean, simulated(name, Exchange(collective=collective), 3, sizes, 0))


def test_a_gradient_that_is_not_finite_is_named_on_all_ranks(ranks):
    ranks.run(not_finite, world=3)


def damaged(group):
    """One bit of what rank 1 says turns over on the way to rank 0."""
    rank, sizes = dist.get_rank(group), SHAPES[0]
    by, transport = made("alq", group, collective="gather")
    if rank == 1:
        encode = by.codec.encode_or_mark  # type: ignore[attr-defined]

        def flipped(*arguments):
            payload = encode(*arguments)
            payload[60] ^= 4
            return payload

        by.codec.encode_or_mark = flipped  # type: ignore[attr-defined]
    with pytest.raises(MessageError, match=r"damaged on the way|cut short"):
        by.mean({rank: gradient(rank, 0, sizes)}, tiled(sizes), Key(SEED, 0, rank), torch.empty(323))
    assert transport.bytes_sent["messages"] > 0


def test_damage_on_the_way_raises(ranks):
    ranks.run(damaged, world=2)


def counted(group):
    """Bytes of the table in nuq/exchange/collectives."""
    rank, world, n = dist.get_rank(group), dist.get_world_size(group), 6400
    for name in ("alq", "trn"):
        compressors = CompressorMap(name, settings_of(name, bucket_size=64), 4)
        layout = tiled({"a": n})
        first, second = compressors.codec.size(layout), compressors.mean_codec.size(layout)
        assert first and second
        expected = {"gather": (world - 1) * first, "two_stage": (world - 1) / world * (first + second)}
        expected["server"] = first if rank else (world - 1) * second
        for collective, wanted in expected.items():
            transport = Transport(group, timeout_s=30)
            _, by = build(
                compressors,
                Exchange(collective=collective),
                transport,
                WorkerPlacement.of(world, world),
                ExchangeStats(),
            )
            by.mean({rank: torch.randn(n)}, layout, Key(0, 0, rank), torch.empty(n))
            sent = transport.bytes_sent["messages"] + transport.bytes_sent["means"]
            assert sent == wanted if collective != "two_stage" else abs(sent - wanted) < 70 * 2 * (world - 1), (
                collective,
                sent,
                wanted,
            )


def test_bytes_are_those_of_the_table(ranks):
    ranks.run(counted, world=4)


# --- the first few to arrive ---


def first_two_of_three(group):
    """Rank 2 sets out when the others are done with six exchanges: its messages are late, and nobody waited for it.

    They are of buckets of two sizes: late ones are longer than any of the exchange in which they are read.
    """
    rank, steps = dist.get_rank(group), 6
    by, transport = made("supersgd", group, collective="server", num_aggregate=2)
    assert dist.group.WORLD is not None
    store, done = dist.group.WORLD.get_group_store(), f"done {transport._number}"
    if rank == 2:
        store.wait([done])
    for step in range(steps):
        n = (20_000, 10)[step % 2]
        mean = torch.empty(n)
        by.mean({rank: torch.full((n,), float(10 * step + rank))}, tiled({"a": n}), Key(0, step, rank), mean)
        assert torch.equal(mean, torch.full((n,), 10 * step + 0.5)), (step, mean[0])  # of ranks 0 and 1 alone
    if rank == 1:
        store.set(done, "")
    by.settle()  # type: ignore[attr-defined]
    transport.numbers([rank], "control")


def test_the_server_takes_the_first_and_throws_the_late_away(ranks):
    ranks.run(first_two_of_three, world=3)


def any_two_of_four(group):
    """The mean is of exactly two workers, whoever comes first, and the same everywhere."""
    rank, steps = dist.get_rank(group), 12
    by, _ = made("supersgd", group, collective="server", num_aggregate=2)
    taken = []
    for step in range(steps):
        mean = torch.empty(4)
        by.mean({rank: torch.eye(4)[rank]}, tiled({"a": 4}), Key(0, step, rank), mean)
        assert sorted(mean.tolist()) == [0, 0, 0.5, 0.5]
        assert_same_bits(group, mean)
        taken.append(mean)
    by.settle()  # type: ignore[attr-defined]
    return torch.stack(taken)[:, 0].tolist()


def test_means_are_of_as_many_as_were_asked_for(ranks):
    assert ranks.run(any_two_of_four)[3] == [0.5] * 12  # rank 0 hosts the server, and is always among them


def test_the_simulated_server_draws_who_comes_first():
    sizes = {"a": 5}
    means = [simulated("supersgd", Exchange(collective="server", num_aggregate=2), 4, sizes, step) for step in range(3)]
    again = [simulated("supersgd", Exchange(collective="server", num_aggregate=2), 4, sizes, step) for step in range(3)]
    pairs = []
    for step, (mean, same) in enumerate(zip(means, again, strict=True)):
        assert torch.equal(mean, same)
        rows = [gradient(worker, step, sizes) for worker in range(4)]
        found = [(a, b) for a in range(4) for b in range(a) if torch.allclose((rows[a] + rows[b]) / 2, mean)]
        assert len(found) == 1
        pairs += found
    assert len(set(pairs)) > 1


# --- the choice ---


@pytest.mark.parametrize(
    ("name", "bits", "workers", "choice"),
    [
        ("qsgdinf", 3, 1, "gather"),
        ("qsgdinf", 3, 2, "gather"),
        ("qsgdinf", 3, 3, "two_stage"),
        ("qsgdinf", 3, 8, "two_stage"),
        ("eden", 8, 2, "gather"),  # two stages would send less in 4 bits, and err by hundreds of times as much
        ("sgd", 32, 8, "gather"),
    ],
)
def test_auto_takes_the_fewest_bytes_within_its_bound(name, bits, workers, choice):
    compressors = CompressorMap(name, settings_of(name, bits=bits), 4)
    assert fewest_bytes(compressors, Transport(None), workers) == choice
    (second_bits,) = compressors.second_bits
    second = compressors.every[0].mean_encoder
    assert second_bits > bits if choice == "two_stage" else second_bits == 4
    wanted = compressors.every[0].encoder_of_means(second_bits)
    assert second.message_bytes(1 << 20) == wanted.message_bytes(1 << 20)


def test_means_travel_in_the_bits_that_were_asked_for_at_least():
    compressors = CompressorMap("qsgdinf", settings_of("qsgdinf"), 8)
    assert fewest_bytes(compressors, Transport(None), 8) == "two_stage"
    assert compressors.second_bits == [8]
