"""What is noted of an unchanged script is what the script does, and what cannot be measured is said in a sentence."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from nuq.advice import script
from nuq.advice.processor_share import processor_share
from nuq.advice.script import TIMED, WARM_UP, CannotMeasure, _Watch, observed
from tests.nuq.advice import scripts
from tests.tiers import few


def _script(folder: Path, text: str) -> Path:
    (path := folder / "train.py").write_text(text)
    return path


def _gradients(steps: range) -> list[torch.Tensor]:
    """Those of the script's steps, without DDP."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 5))
    found = []
    for step in range(steps.stop):
        model.zero_grad()
        x = torch.randn(16, 40, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    return found[steps.start :]


def test_the_gradients_are_the_scripts_own(tmp_path: Path) -> None:
    made = DistributedDataParallel.__init__
    seen = observed(_script(tmp_path, scripts.TRAINING), [], 3)
    first = WARM_UP + TIMED
    for found, expected in zip(seen.gradients, _gradients(range(first, first + 3)), strict=True):
        torch.testing.assert_close(found, expected)
    assert seen.shapes == {"0.weight": (300, 40), "0.bias": (300,), "2.weight": (5, 300), "2.bias": (5,)}
    assert seen.num_parameters == seen.model().parameters == 300 * 41 + 5 * 301
    assert sorted(name for names, _ in seen.buckets for name in names) == sorted(seen.shapes)
    assert seen.buckets[-1][1] == 1.0 and seen.plain == "fp32" and seen.num_modules == 1
    assert 0 < seen.tail < 1 and seen.compute_s > 0
    one = seen.model({"0.bias", "2.bias"}).buckets
    sizes = [sum(values) for values in zip(*((own.coordinates, own.tensors, own.whole) for own in one), strict=True)]
    assert sizes == [300 * 40 + 5 * 300, 2, 305]
    assert DistributedDataParallel.__init__ is made and not dist.is_initialized()


@pytest.fixture
def terminable() -> Iterator[None]:
    """SIGTERM ends forked processes, whatever handler an earlier test has left; a pool is ended so."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@pytest.mark.usefixtures("terminable")
@few(
    2,
    ("text", "arguments"),
    [
        (scripts.WITHOUT_DDP, []),
        (scripts.BESIDE, []),
        (scripts.TRAINING, ["--steps", "4"]),
        (scripts.ZERO, ["--steps", "70"]),
        (scripts.DOUBLE, []),
        (scripts.TRAINING, ["--steps", "x"]),
        (scripts.STARTING, []),
        (scripts.POOLED, []),
        (scripts.ANOTHER_HOOK, []),
    ],
)
def test_what_cannot_be_measured(text: str, arguments: list[str], tmp_path: Path) -> None:
    before = {*multiprocessing.active_children()}  # ranks that other tests keep
    with pytest.raises(CannotMeasure):
        observed(_script(tmp_path, text), arguments, 2)
    assert not dist.is_initialized()
    started = {*multiprocessing.active_children()} - before
    for process in started:
        process.join(10)
    assert not [process for process in started if process.is_alive()]


def test_a_script_may_end_with_the_last_step_needed(tmp_path: Path) -> None:
    seen = observed(_script(tmp_path, scripts.SCALED), ["--steps", str(WARM_UP + TIMED + 4)], 2)
    assert len(seen.gradients) == 2 and all(bool(torch.isfinite(gradient).all()) for gradient in seen.gradients)


def test_a_script_that_does_not_expect_to_be_left_is_measured(tmp_path: Path) -> None:
    text = scripts.TRAINING.replace("for step in", "ended = []\ntry:\n  for step in", 1)
    head, _, loop = text.partition("  for step in")
    indented = "\n".join(f"  {line}" if line.startswith("    ") else line for line in loop.splitlines())
    seen = observed(_script(tmp_path, f"{head}  for step in{indented}\nfinally:\n  1 / len(ended)\n"), [], 2)
    assert len(seen.gradients) == 2


def test_a_model_in_eval_mode_is_trained_all_the_same(tmp_path: Path) -> None:
    frozen = scripts.TRAINING.replace("optimizer = ", "ddp.eval()  # frozen normalization\noptimizer = ")
    assert "ddp.eval()" in frozen
    seen = observed(_script(tmp_path, frozen), [], 2)
    assert len(seen.gradients) == 2 and seen.compute_s > 0


@pytest.mark.parametrize(("slow", "spread"), [(range(6, 9), 3.0), (range(8, 9), 1.0)])
def test_a_disturbance_of_several_steps_spreads_them(slow: range, spread: float) -> None:
    watch, ready = _Watch(2), (("w",), 0.5)
    begun = 0.0
    for step in range(WARM_UP + TIMED + 2):
        watch.times.append((begun, [(ready[0], begun + ready[1])]))
        begun += 3.0 if step in slow else 1.0
    assert watch.found().spread == spread


def test_threads_without_a_processor_each_have_a_share_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < processor_share(4 * (os.cpu_count() or 1)) < 0.3
    monkeypatch.setattr(script, "processor_share", lambda num_threads: 0.25 / num_threads)
    assert observed(_script(tmp_path, scripts.TRAINING), [], 2).processor_share == 0.25 / torch.get_num_threads()


def test_other_modules_are_counted_and_halves_known(tmp_path: Path) -> None:
    seen = observed(_script(tmp_path, scripts.HALVES), [], 2)
    assert (seen.plain, seen.num_modules) == ("bf16", 2)


def test_a_script_that_spawns_its_ranks_runs_the_first(tmp_path: Path) -> None:
    seen = observed(_script(tmp_path, scripts.SPAWNING), [], 2)
    assert seen.shapes == {"weight": (4, 7), "bias": (4,)}
    assert vars(torch.multiprocessing)["spawn"] is spawn
