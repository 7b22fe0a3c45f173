"""The cost model's arithmetic by hand: bytes of messages, seconds of collectives, and what overlaps."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nuq.exchange.payload import PayloadCodec
from nuq.kernels.spec import Key
from nuq.prediction.message_size import Factors, Format, MeasuredFormat, by_formula, format_of, second_format
from nuq.prediction.rates import Bucket, CodecRates, Model
from nuq.prediction.steps import Network, Stage, Variant, schedule, stages
from nuq.registry import METHODS
from tests.analysis.prediction.known_cases import BF16, MILLION, MS, PLAIN, UNIFORM
from tests.nuq.parts import tiled


def seconds(found: list[Stage]) -> list[float]:
    return [stage.seconds for stage in found]


def test_frames_have_the_length_of_real_ones(subtests: pytest.Subtests) -> None:
    """Of as many equally long messages in one frame."""
    for name, size, messages in itertools.product(filter(by_formula, METHODS), (1, 1000, 20_001, 100_000), (1, 3)):
        with subtests.test(method=name, size=size, messages=messages):
            vector = torch.randn(size * messages, generator=torch.Generator().manual_seed(size))
            method = METHODS[name]
            layout = tiled({str(number): size for number in range(messages)})
            real = PayloadCodec(method.load()(method.settings())).encode(vector, layout, Key(0, 0, 0)).numel()
            expected = format_of(name).frame_bytes(size * messages, messages)
            assert expected == (pytest.approx(real, rel=0.02, abs=110 * messages) if name == "ecdq" else real)


def test_means_are_encoded_by_the_method_that_the_table_names() -> None:
    assert second_format("alq", 4) == Format("levels", 4)
    assert second_format("trn", 4) == Format("uniform", 4)
    assert second_format("drive", 5, 1024) == Format("rotated", 5, 1024)
    with pytest.raises(ValueError, match="fp8"):
        format_of("fp8")
    some = MeasuredFormat("topk", 0.08, 24, 12)
    means = second_format("topk", 4, None, {"topk": some})
    assert isinstance(means, MeasuredFormat)
    # ten workers' coordinates, if no two have the same, up to a float and a bit of a map for each
    assert means.kind == "nonzero"
    assert [means.of_mean(workers).coordinate_bytes for workers in (10, 100)] == [0.8, 4.125]
    assert some.of_mean(10) == some
    assert some.frame_bytes(1000, 3) == 12 + 3 * 24 + 80


def test_ring_by_hand() -> None:
    # 1e6 bf16 coordinates, 4 workers: 2 * 3/4 * 2e6 bytes = 3e6, at 1e9 bit/s 24 ms, and 6 rounds of 1 ms
    found, sent = stages("ring", BF16, MILLION, Network(4, 1e9), PLAIN)
    assert sent == 3_000_000
    assert seconds(found) == pytest.approx([0, 30 * MS, 0], abs=1e-9)


def test_tree_by_hand() -> None:
    # 2 * 2e6 bytes, 32 ms, and 2 * ceil(log2 5) = 6 rounds
    found, sent = stages("tree", BF16, MILLION, Network(5, 1e9), PLAIN)
    assert sent == 4_000_000
    assert seconds(found) == pytest.approx([0, 38 * MS, 0], abs=1e-9)


def test_gather_by_hand() -> None:
    # a frame of 12 + 16 + 12 + 4 + 375000 bytes to each of 3; encoding 4 ms, decoding 4 of them at 2 ms
    found, sent = stages("gather", UNIFORM, MILLION, Network(4, 1e9), PLAIN)
    assert sent == 3 * 375_044
    assert seconds(found) == pytest.approx([4 * MS, 1 * MS + 3 * 375_044 * 8e-9, 8 * MS])


def test_two_stage_by_hand() -> None:
    # 4 shards of 250,000 coordinates: a frame of 93,796 bytes at 3 bits and 125,044 at 4
    found, sent = stages("two_stage", UNIFORM, MILLION, Network(4, 1e9), PLAIN)
    assert sent == 3 * (93_796 + 125_044)
    wires = [1 * MS + 3 * size * 8e-9 for size in (93_796, 125_044)]
    assert seconds(found) == pytest.approx([4 * MS, wires[0], 2 * MS, 1 * MS, wires[1], 2 * MS])


def test_server_by_hand() -> None:
    # rank 0 takes 3 messages of 3 bits, decodes 4, encodes one of 4 bits and sends it to 3, everyone decodes it
    found, sent = stages("server", UNIFORM, MILLION, Network(4, 1e9), PLAIN)
    assert sent == 3 * 500_044
    wires = [1 * MS + 3 * size * 8e-9 for size in (375_044, 500_044)]
    assert seconds(found) == pytest.approx([4 * MS, wires[0], 8 * MS, 4 * MS, wires[1], 2 * MS])


@pytest.mark.parametrize(("workers", "rounds", "share"), [(2, 2, 1.0), (4, 4, 1 / 4)])
def test_power_by_hand(workers: int, rounds: int, share: float) -> None:
    # a matrix of 1000 x 1000: two factors of 4 x 1000 float32; from three workers on each in two stages
    factors = Factors(4)
    rates = replace(PLAIN, codecs={**PLAIN.codecs, "powersgd": CodecRates(1.0, 2.0)})
    found, sent = stages("power", Variant(factors, factors), MILLION, Network(workers, 1e9), rates)
    each = (workers - 1) * 16_000 * share
    assert sent == rounds * each
    assert seconds(found) == pytest.approx([4 * MS, *[1 * MS + each * 8e-9] * rounds, 2 * MS])
    assert Variant(factors, factors).collectives == ("power",)


def test_hierarchical_by_hand() -> None:
    # 2 machines of 2 at 10 Gbit/s inside: a ring of 4e6 bytes in 2 rounds, gather between 2, 4e6 bytes back
    found, sent = stages("hierarchical", UNIFORM, MILLION, Network(4, 1e9, 2, 1e10), PLAIN)
    assert sent == 4_000_000 + 375_044 + 4_000_000
    local = 4e6 * 8e-10
    assert seconds(found) == pytest.approx(
        [2 * MS + local, 0, 4 * MS, 1 * MS + 375_044 * 8e-9, 4 * MS, 1 * MS + local], abs=1e-9
    )


def test_workers_of_a_machine_share_its_link() -> None:
    # 2 local workers each send to the 2 outside: four messages through one link; a ring crosses it once
    network = Network(4, 1e9, 2, 1e10)
    assert stages("gather", UNIFORM, MILLION, network, PLAIN)[0][1].seconds == pytest.approx(
        1 * MS + 4 * 375_044 * 8e-9
    )
    assert stages("ring", BF16, MILLION, network, PLAIN)[0][1].seconds == pytest.approx(6 * MS + 3e6 * 8e-9)


def test_messages_frames_and_bytes_cost_processor_time() -> None:
    rates = CodecRates(1.0, 2.0, 5 * MS, 7 * MS, 11 * MS, 13 * MS)
    costly = replace(PLAIN, message_s=2 * MS, host_gb_s=0.1, codecs={**PLAIN.codecs, "uniform": rates})
    bucket = replace(MILLION, tensors=10)
    encode, wire, decode = stages("gather", UNIFORM, bucket, Network(3, 1e12), costly)[0]
    size = 12 + 10 * (16 + 12 + 4 + 37_500)
    assert encode.seconds == pytest.approx(4 * MS + 10 * 5 * MS + 11 * MS)
    assert wire.cpu_s == pytest.approx(2 * size / 1e8 + 2 * 2 * MS)
    assert wire.seconds == pytest.approx(1 * MS + wire.cpu_s)  # the link is quicker than the processor
    assert decode.seconds == pytest.approx(3 * 2 * MS + 30 * 7 * MS + 3 * 13 * MS)
    assert stages("gather", UNIFORM, bucket, Network(3, 1e12), costly, busy=2)[0][0].seconds == pytest.approx(
        2 * encode.seconds
    )


TWO = Model((Bucket(1, 0.5), Bucket(1, 1.0)), forward=0.2, tail=0.1)  # of 10 s: ready at 5.5 and 9, then 1 s of tail


@pytest.mark.parametrize(
    ("first", "second", "shared", "step"),
    [
        (Stage(3, 0), Stage(2, 0), False, 12.0),  # the first hides
        (Stage(5, 0), Stage(2, 0), False, 13.5),  # the second waits for it
        (Stage(3, 3), Stage(2, 2), False, 12.0),
        (Stage(1, 1), Stage(2, 2), True, 13.0),  # 5.5 .. 7.5 taking turns, the computation ends at 10
        (
            Stage(4, 4),
            Stage(1, 1),
            True,
            15.0,
        ),  # 3.5 s of computation and 4 of the lane take 7 + .5; then 1, then the tail
        (Stage(2, 0.5), Stage(0, 0), True, 10.5),  # a quarter of the core for 2 s
        (Stage(0, 0), Stage(0, 0), True, 10.0),
    ],
)
def test_schedules_by_hand(first: Stage, second: Stage, shared: bool, step: float) -> None:
    assert schedule(TWO, 10.0, [[first], [second]], shared_core=shared) == pytest.approx(step)


def test_rounds_wait_longer_where_the_core_computes() -> None:
    # ready at 5.5: one round waits .5 longer, until 7; the second bucket at 9 has as much left of the computation
    lanes = [[Stage(1, 0, 1)], [Stage(1, 0, 1)]]
    assert schedule(TWO, 10.0, lanes, shared_core=True, busy_round_s=0.5) == pytest.approx(11.0)
    assert schedule(TWO, 10.0, lanes, shared_core=True, busy_round_s=4.0) == pytest.approx(12.0)  # lane: 5.5, 10, 11
    assert schedule(TWO, 10.0, lanes, shared_core=False, busy_round_s=4.0) == pytest.approx(11.0)


def test_a_mean_is_begun_divided_and_checked() -> None:
    costly = replace(PLAIN, mean_gb_s=4.0)  # a million coordinates in 1 ms
    network = Network(4, 1e12)
    for collective, extra in (
        ("gather", [0, 0, 1]),
        ("two_stage", [0, 0, 0.25, 0, 0, 0]),
        ("server", [0, 0, 1, 0, 0, 0]),
    ):
        with_it, without = (stages(collective, UNIFORM, MILLION, network, of)[0] for of in (costly, PLAIN))
        more = [a.cpu_s - b.cpu_s for a, b in zip(with_it, without, strict=True)]
        assert more == pytest.approx([MS * each for each in extra], abs=1e-8)


@given(
    st.lists(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), max_size=4), min_size=1, max_size=5),
    st.floats(0, 10),
    st.floats(0, 0.8),
)
def test_no_schedule_beats_its_parts(
    buckets: list[list[tuple[float, float]]], compute_s: float, forward: float
) -> None:
    """Processor work adds up on a shared core, the lane's stages add up anywhere; and nothing takes longer than one
    after another.
    """
    model = Model(tuple(Bucket(1, (number + 1) / len(buckets)) for number in range(len(buckets))), forward, 0.1)
    lanes = [[Stage(length, length * use) for length, use in bucket] for bucket in buckets]
    lane = sum(stage.seconds for bucket in lanes for stage in bucket)
    cpu = sum(stage.cpu_s for bucket in lanes for stage in bucket)
    apart, shared = (schedule(model, compute_s, lanes, shared_core=flag) for flag in (False, True))
    slack = 1e-9 * (1 + compute_s + lane)
    assert max(compute_s, lane) - slack <= apart <= shared + slack
    assert compute_s + cpu - slack <= shared <= compute_s + lane + slack
