"""Levels are solved for when they are read, once: not when a quantizer is built, nor for a gap that nobody reads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.compressor_map import MethodState
from nuq.exchange.level_updates import LevelUpdater
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, solver_exact, solver_optimal, update_rules
from nuq.registry import METHODS

ADAPTIVE = [name for name, entry in METHODS.items() if entry.adaptive]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the exact solvers that were called so far."""
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        solve: Callable[..., Any] = getattr(module, name)

        def call(*given: Any, **how: Any) -> Any:
            calls.append(name)
            return solve(*given, **how)

        monkeypatch.setattr(module, name, call)

    counted(solver_optimal, "optima")  # of ALQ, ALQ-G and the optimum
    counted(solver_exact, "multiplier")  # of AMQ
    return calls


def built(name: str, **settings: Any) -> AdaptiveQuantizer:
    return METHODS[name].load()(METHODS[name].settings(**settings))


def observed(made: AdaptiveQuantizer, seed: int = 0) -> Statistics:
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(20_000, generator=generator) * torch.rand(20_000, generator=generator).pow(-0.5)
    return made.observed([(vector, Key(0, seed, 0))])


@pytest.mark.parametrize("name", ADAPTIVE)
def test_what_is_built_observed_updated_and_encodes_is_solved_once(name: str, solved: list[str]) -> None:
    made = built(name, bucket_size=1021)  # of this test alone: start levels are shared
    statistics = observed(made)
    made.update(statistics)
    assert not solved
    message = made.encode(torch.randn(3000, generator=torch.Generator().manual_seed(1)), Key(0, 0, 0))
    assert len(solved) == 1
    assert built(name).decode(message).numel() == 3000 and made.levels.num_levels == 8
    # the gap, when it is read, is the one of the rule's answer under the distribution that it was fitted to
    distribution = statistics.fit(made.settings.fit, getattr(made.settings, "weights", "norm2"))
    gap = made.state_dict()["gap"]
    assert len(solved) == 2 and made.gap == gap and len(solved) == 2
    rule = {"alq": update_rules.alq, "alq_g": update_rules.alq_gradient, "amq": update_rules.amq}
    fitted = (
        update_rules.optimal(distribution, 8)
        if name == "optimal"
        else rule[name.removesuffix("_n").removesuffix("n")](distribution, 3)
    )
    assert gap == update_rules.gap(fitted, distribution) and made.levels == level_sets.stretched(fitted.levels, 1.0)


@pytest.mark.parametrize("name", ["alq", "amq_n"])
def test_start_levels_are_solved_once_for_all_alike(name: str, solved: list[str]) -> None:
    vector = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    first, second = (built(name, bucket_size=1019) for _ in range(2))
    assert torch.equal(first.encode(vector, Key(0, 0, 0)).to_bytes(), second.encode(vector, Key(0, 0, 0)).to_bytes())
    assert len(solved) == 1
    second.encode(vector[:77], Key(0, 0, 0))  # shorter than a bucket
    built(name, bucket_size=1019).encode(vector[:77], Key(0, 1, 0))
    assert len(solved) == 2
    for others in ({"bits": 4}, {"norm": "l2"}, {"bucket_size": 1018}):  # each with levels of its own
        assert built(name, **{"bucket_size": 1019, **others}).levels != first.levels
    assert len(solved) == 5


def test_levels_of_means_that_nobody_encodes_are_not_solved_for(solved: list[str]) -> None:
    method_state = MethodState("alq", METHODS["alq"].settings(bucket_size=1021), second_bits=8)
    level_updater = LevelUpdater(method_state, 0, [0])
    for seed in range(3):
        level_updater.update([observed(method_state.compressor, seed)])
    assert len(solved) == 3
    assert method_state.adaptive[1].levels.num_levels == 256 and len(solved) == 4  # those of the last update


def test_updates_that_nobody_reads_between_change_nothing() -> None:
    """The paper's solver of AMQ starts from the update before, which is solved for then."""
    for name, settings in (("amq", {"solver": "paper"}), ("alq", {})):
        read, unread = (built(name, bucket_size=1021, **settings) for _ in range(2))
        for seed in range(3):
            for made in (read, unread):
                made.update(observed(made, seed))
            assert read.levels.num_levels == 8 and read.gap is not None
        assert read.levels == unread.levels and read.gap == unread.gap


def test_forgotten_updates_leave_a_quantizer_as_it_was_built() -> None:
    vector = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    made, fresh = (built("alq_n", bucket_size=1021) for _ in range(2))
    made.update(observed(made))
    kept = copy.deepcopy(made)
    made.forget()
    assert not made.fitted and made.gap is None and kept.fitted and kept.levels != made.levels
    for size in (3000, 1000):
        messages = [each.encode(vector[:size], Key(0, 0, 0)).to_bytes() for each in (made, fresh)]
        assert torch.equal(*messages)


def test_threads_that_read_levels_while_others_update_them() -> None:
    """A solution that comes late does not replace that of a later update."""
    made = built("alq", bucket_size=1021)
    wanted = built("alq", bucket_size=1021)
    wanted.update(observed(wanted, 1))
    solve, begun, may_end = made._solve, threading.Event(), threading.Event()

    def slow(*given: Any) -> update_rules.Fitted:
        begun.set()
        assert may_end.wait(60)
        return solve(*given)

    made._solve = slow
    made.update(observed(made))
    thread = threading.Thread(target=lambda: made.levels)
    thread.start()
    assert begun.wait(60)
    made._solve = solve
    made.update(observed(made, 1))
    may_end.set()
    thread.join(60)
    assert made.levels == wanted.levels
