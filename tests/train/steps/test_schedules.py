"""The learning rate as a function of the step: exact at every corner, by hand between them, and in the optimizer."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import args
from settings import resolving
from train.steps import optim
from train.steps.order import Order


def rates(at: range, **chosen: object) -> list[float]:
    config = resolving.resolve({"optim.lr": 0.4, **{key.replace("__", "."): value for key, value in chosen.items()}})
    return [optim.learning_rate(config, step) for step in at]


def test_straight_lines_by_hand() -> None:
    found = rates(range(12), schedule="piecewise_linear", schedule__at=[2, 6, 10], schedule__factors=[0, 1, 0.5])
    assert found == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3, 0.4, 0.35, 0.3, 0.25, 0.2, 0.2])
    assert [found[corner] for corner in (2, 6, 10, 11)] == [
        0.0,
        0.4,
        0.2,
        0.2,
    ]  # exact at the corners, level outside of them
    assert rates(range(2, 3), schedule="piecewise_linear", schedule__at=[0, 2, 4], schedule__factors=[0.2, 0.9, 1]) == [
        0.4 * 0.9
    ]
    assert rates(range(3), schedule="piecewise_linear", schedule__at=[1], schedule__factors=[0.5]) == [0.2, 0.2, 0.2]


def test_resnet9s_rate_is_the_default() -> None:
    epoch = Order(50_000, 512, 1, seed=1).steps_per_epoch
    assert (5 * epoch, 24 * epoch) == (485, 2328)
    found = rates(range(2330), schedule="piecewise_linear", steps=2328)
    assert (found[0], found[485], found[2328], found[2329]) == (0.0, 0.4, 0.0, 0.0)
    np.testing.assert_allclose(found, np.interp(np.arange(2330), [0, 485, 2328], [0, 0.4, 0]), rtol=1e-12, atol=1e-15)
    assert found[97] == pytest.approx(0.08) and found[2327] == pytest.approx(0.4 / 1843)


def test_cosine_by_hand() -> None:
    found = rates(range(10), schedule="cosine", steps=8)
    assert (found[0], found[8], found[9]) == (0.4, 0.0, 0.0)
    half = math.sqrt(0.5)
    expected = [0.4, 0.2 * (1 + math.cos(math.pi / 8)), 0.2 * (1 + half), 0.2 * (1 + math.sin(math.pi / 8)), 0.2]
    assert found[:5] == pytest.approx(expected)
    assert [high + low for high, low in zip(found[:9], found[8::-1], strict=True)] == pytest.approx([0.4] * 9)


def test_warm_up_then_cosine_as_dgc() -> None:
    """Four workers and two epochs of three steps: (epoch (4 - 1) / 2 + 1) / 4 of the rate, then a whole cosine over
    what is left.
    """
    found = rates(range(11), schedule="cosine", schedule__warmup_steps=6, schedule__warmup_factor=0.25, steps=10)
    rise = [0.4 * (epoch * 3 / 2 + 1) / 4 for epoch in (0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3)]
    assert found == pytest.approx(
        [*rise, 0.4, 0.2 * (1 + math.sqrt(0.5)), 0.2, 0.2 * (1 - math.sqrt(0.5)), 0], abs=1e-15
    )
    assert (found[0], found[6], found[10]) == (0.1, 0.4, 0.0)


def test_warm_up_of_steps() -> None:
    found = rates(range(8), schedule="step", schedule__at=[6], schedule__warmup_steps=4, schedule__warmup_factor=0)
    assert found == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.04, 0.04])
    assert (
        rates(range(8), schedule="step", schedule__at=[6]) == [0.4] * 6 + [0.4 * 0.1] * 2
    )  # to the bit without warm-up


def test_warm_up_then_exponential_decay_from_its_end() -> None:
    found = rates(range(9), schedule="exponential", schedule__factor=0.25, schedule__period=2, schedule__warmup_steps=4)
    assert found == pytest.approx([0.1, 0.175, 0.25, 0.325, 0.4, 0.2, 0.1, 0.05, 0.025])
    assert found[4] == 0.4
    plain = rates(range(9), schedule="exponential", schedule__factor=0.25, schedule__period=3)
    assert plain == [0.4 * 0.25 ** (step / 3) for step in range(9)]  # to the bit without warm-up


def test_warm_up_of_a_constant_rate() -> None:
    found = rates(range(7), schedule__warmup_steps=4, schedule__warmup_factor=0.5)
    assert found == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4, 0.4, 0.4])
    assert found[4:] == rates(range(3)) == [0.4] * 3


@pytest.mark.parametrize("schedule", [name for name in args.GROUPS["schedule"] if name != "piecewise_linear"])
def test_every_schedule_warms_up_by_the_same_line(schedule: str) -> None:
    found = rates(range(51), schedule=schedule, schedule__warmup_steps=50, schedule__warmup_factor=0.125, steps=60)
    np.testing.assert_allclose(found, np.linspace(0.05, 0.4, 51), rtol=1e-12)


def test_a_run_shorter_than_its_warm_up_ends_in_it() -> None:
    found = rates(range(4), schedule="cosine", schedule__warmup_steps=8, schedule__warmup_factor=0, steps=4)
    assert found == pytest.approx([0, 0.05, 0.1, 0.15])


@given(st.integers(1, 300), st.integers(0, 200), st.floats(0, 1))
def test_cosine_stays_between_zero_and_the_rate(steps: int, warmup_steps: int, factor: float) -> None:
    config = resolving.resolve(
        {"schedule": "cosine", "steps": steps, "schedule.warmup_steps": warmup_steps, "optim.lr": 2}
    )
    config["schedule"]["warmup_factor"] = factor
    found = [optim.learning_rate(config, step) for step in range(steps + 1)]
    assert all(0 <= rate <= 2 for rate in found)
    falls = found[warmup_steps:]
    assert falls == sorted(falls, reverse=True) and found[:warmup_steps] == sorted(found[:warmup_steps])
    if steps > warmup_steps:
        assert (found[warmup_steps], found[-1]) == (2.0, 0.0)
