"""DGC's warm-up: the ratio of every step, and that workers and the DDP hook really send so many coordinates, also at
the borders.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from nuq.compressors.frame import Frame
from nuq.compressors.message import HEADER_BYTES
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from settings import resolving
from tests.nuq.parts import flat, frame_bytes
from tests.nuq.small_training import backward, descend, hooked, net

PAPER = [
    0.25,
    0.0625,
    0.015625,
    0.004,
]  # 75, 93.75, 98.4375 and 99.6 % of the coordinates stay, an epoch each; then 99.9 %
EXACT: dict[str, Any] = {"selection": "exact", "indices": "int32"}  # lengths that follow from k alone
SHAPES = {"conv": (37, 53), "bias": (41,), "linear": (10, 37)}
FACTOR_BYTES = 4  # what the memory puts before a message


def make(**given: Any) -> Any:
    return METHODS["dgc"].load()(METHODS["dgc"].settings(**given))


def kept(n: int, ratio: float) -> int:
    """max(1, ceil(ratio n)) in decimals."""
    return max(1, math.ceil(Fraction(str(ratio)) * n))


def message_bytes(shape: tuple[int, ...], ratio: float) -> int:
    """Header, flags and k, the values, and the indices where not all travel; vectors are whole."""
    n = math.prod(shape)
    k = n if len(shape) == 1 else kept(n, ratio)
    return HEADER_BYTES + 5 + 4 * k + (1 + 4 * k if k < n else 0)


@pytest.mark.parametrize("steps_per_epoch", [1, 97, 391])  # CIFAR-10: 50,000 samples by 4 or 1 workers' batches of 128
def test_every_step_has_its_ratio(steps_per_epoch: int) -> None:
    method = make(warmup_every=steps_per_epoch)
    wanted = [ratio for ratio in PAPER for _ in range(steps_per_epoch)] + [0.001] * (2 * steps_per_epoch)
    assert [method.ratio_at(step) for step in range(len(wanted))] == wanted
    assert method.ratio_at(10**9) == 0.001


@given(
    st.integers(1, 1000),
    st.lists(st.floats(1e-6, 1), min_size=1, max_size=6),
    st.floats(1e-6, 1),
    st.integers(0, 10**4),
    st.integers(1, 10**6),
)
def test_any_schedule(every: int, ratios: list[float], last: float, step: int, n: int) -> None:
    """Schedules may have ratios that rise; the bound on a message's length is that of the largest."""
    method = make(warmup_every=every, warmup_ratios=ratios, ratio=last)
    assert method.ratio_at(step) == ([*ratios, last][step // every] if step // every < len(ratios) else last)
    assert make(warmup_every=every, warmup_ratios=ratios, ratio=last, dense_1d=False).most(n) == max(
        kept(n, r) for r in [*ratios, last]
    )


BORDERS = (0, 9, 10, 19, 20, 29, 30, 39, 40, 41, 1000)
STAGES = [*PAPER, 0.001]


@pytest.mark.parametrize("step", BORDERS)
def test_workers_send_as_many_as_the_schedule_says(step: int) -> None:
    shapes = {name: torch.Size(shape) for name, shape in SHAPES.items()}
    settings = METHODS["dgc"].settings(warmup_every=10, **EXACT)
    workers = Workers("dgc", settings, 2, shapes, 1, torch.device("cpu"), memory=Memory(Feedback(), momentum=0.9))
    generator = torch.Generator().manual_seed(step)
    gradients = {
        worker: flat(torch.randn(shape, generator=generator) for shape in shapes.values()) for worker in range(2)
    }
    ratio = STAGES[min(step // 10, 4)]
    lengths = {name: message_bytes(shape, ratio) for name, shape in SHAPES.items()}
    sent = workers.exchange(gradients, {0: 0.0, 1: 0.0}, step).bytes_per_worker
    assert sent == frame_bytes(*(FACTOR_BYTES + length for length in lengths.values()))
    frame = Frame.read(workers.encode(gradients[0], Key(1, step, 0)))  # without the memory
    messages = [frame.message(number) for number in range(3)]
    assert {name: message.num_bytes for name, message in zip(SHAPES, messages, strict=True)} == lengths


def test_the_sampled_choice_follows_it_too() -> None:
    """The threshold from a sample lets at most k coordinates through, and not much fewer."""
    method, x = make(warmup_every=10), torch.randn(200, 300, generator=torch.Generator().manual_seed(0))
    for step in BORDERS:
        k = kept(60_000, STAGES[min(step // 10, 4)])
        assert 0.8 * k <= int((method.decode(method.encode(x, Key(1, step, 0, "x"))) != 0).sum()) <= k


def through_the_stages(group: dist.ProcessGroup) -> list[int]:
    """Bytes that a rank encodes in each of twelve steps, two of each stage."""
    model, state = hooked(group, net(), method="dgc", collective="gather", warmup_every=2, **EXACT)
    sent = []
    for step in range(12):
        before = state._here.driver.stats.encoded.total()
        descend(model, lambda step=step: backward(model, dist.get_rank(group), step))
        sent.append(state._here.driver.stats.encoded.total() - before)
    state.close()
    return sent


def test_the_hook_sends_as_many_as_the_schedule_says(ranks: Any) -> None:
    shapes = [tuple(parameter.shape) for parameter in net().parameters()]
    wanted = [
        frame_bytes(*(FACTOR_BYTES + message_bytes(shape, STAGES[min(step // 2, 4)]) for shape in shapes))
        for step in range(12)
    ]
    for outcome in ranks.run(through_the_stages, world=2):
        assert outcome == wanted


@pytest.mark.parametrize("ratios", [[0.5], [1.0, 1.0], [0.25, 0.0625, 0.015625]])
def test_ratios_without_a_warmup_are_told(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="warmup_ratios"):
        make(warmup_ratios=ratios)
    with pytest.raises(ValueError, match="warmup_ratios"):
        resolving.resolve({"method": "dgc", "method.warmup_ratios": ratios})
    assert (
        resolving.resolve({"method": "dgc", "method.warmup_ratios": ratios, "method.warmup_every": 1})["method"][
            "warmup_ratios"
        ]
        == ratios
    )
    assert (
        resolving.resolve({"method": "dgc", "method.warmup_ratios": PAPER})["method"]["warmup_every"] == 0
    )  # the default says nothing
