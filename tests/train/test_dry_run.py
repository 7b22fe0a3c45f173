"""The dry run's estimates, with a clock that gives every timed action one second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.sweeps.families import find, load
from nuq.simulation import Workers
from settings import resolving, sections
from tests.tiers import few
from train import data, dry_run
from train.process import status
from train.steps.order import Order
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
CIFAR = {"method": "alq", "data": "cifar10", "model": "resnet8"}


@pytest.fixture
def one_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(action: Callable[[], Any], device: torch.device) -> float:
        del device
        action()
        return 1.0

    monkeypatch.setattr(dry_run, "_seconds", seconds)


def config(tmp_path: Path, **chosen: object) -> dict[str, Any]:
    """CIFAR-10 and ResNet-8 on stand-ins: there is no data in ``tmp_path``."""
    return resolving.resolve(
        {**CIFAR, "data_dir": str(tmp_path), **{key.replace("__", "."): value for key, value in chosen.items()}}
    )


@pytest.mark.slow
def test_rounds_of_local_steps_send_as_often_as_they_end(tmp_path: Path) -> None:
    every = {"method": "qsgdinf", "model": "resnet8", "steps": 120, "eval_every": 0, "batch_size": 4, "workers": 2}
    sent = [dry_run.dry_run(config(tmp_path, **every, exchange__local_steps=h))["sent_gb"] for h in (1, 3, 40)]
    assert sent == pytest.approx([sent[0], sent[0] / 3, sent[0] / 40])


@pytest.mark.usefixtures("one_second_each")
def test_a_stand_in_gives_the_estimates_of_the_full_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = config(
        tmp_path,
        steps=1000,
        eval_every=300,
        eval_train=False,
        batch_size=32,
        method__update_at=[5, 999, 1000],
        method__num_samples=3,
        method__statistics="fresh",
    )
    estimate = dry_run.dry_run(chosen)
    assert "marked stand-in tensors in place of data=cifar10" in capsys.readouterr().out

    trainer = Trainer(chosen | {"stand_in": True}, device=CPU)
    assert estimate["sent_gb"] == 1000 * trainer.train_step().bytes_per_worker / 1e9
    assert estimate["evaluate_s"] == 4 * 10_000 / dry_run.BATCH_SIZE
    pass_s = 32 / dry_run.BATCH_SIZE
    assert estimate["train_s"] == 1000 * 4 * pass_s
    assert estimate["update_s"] == 2 * (3 * 4 * (pass_s + 1 / 4) + 1)
    assert estimate["measure_s"] == 0
    assert estimate["seconds"] == estimate["train_s"] + estimate["update_s"] + estimate["evaluate_s"]


@pytest.mark.usefixtures("one_second_each")
def test_evaluation_of_both_splits_takes_both_true_sizes(tmp_path: Path) -> None:
    estimate = dry_run.dry_run(config(tmp_path, steps=10, eval_every=5, eval_train=True))
    assert estimate["evaluate_s"] == 2 * 60_000 / dry_run.BATCH_SIZE


@pytest.mark.usefixtures("one_second_each")
def test_a_run_that_never_evaluates_spends_no_time_on_it(tmp_path: Path) -> None:
    assert dry_run.dry_run(config(tmp_path, steps=10, eval_every=0))["evaluate_s"] == 0


@few(1, "collective", ["two_stage", "server", "hierarchical"])
def test_any_collective_can_be_tried_in_one_process(
    collective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = config(tmp_path, steps=10, stand_in=True, exchange__collective=collective)
    estimate = dry_run.dry_run(chosen)
    assert ("in place of hierarchical" in capsys.readouterr().out) == (collective == "hierarchical")
    other = {"hierarchical": "auto"}.get(collective, collective)
    trainer = Trainer({**chosen, "exchange": {**chosen["exchange"], "collective": other}}, device=CPU)
    assert estimate["sent_gb"] == pytest.approx(10 * trainer.train_step().bytes_per_worker / 1e9)


def test_memory_of_a_pass_grows_with_its_batch(tmp_path: Path) -> None:
    chosen = config(tmp_path, stand_in=True, batch_size=4, eval_batch_size=4)
    trainer = Trainer(chosen, device=CPU)
    activations = dry_run._activations(trainer)
    floats = 4 * 16 * 32 * 32
    assert max(activations) == floats
    assert (
        7 * floats < sum(activations) < 30 * floats
    )  # seven layers, their normalizations and activations, partly smaller

    def pass_bytes(**changed: object) -> int:
        return dry_run._pass_bytes(chosen | changed, activations)

    assert pass_bytes(batch_size=64) - pass_bytes(batch_size=32) == 32 * dry_run.PASS_COPIES * sum(activations)
    assert pass_bytes(eval_batch_size=10_000) == 10_000 * dry_run.EVAL_COPIES * floats


@pytest.mark.slow
@pytest.mark.usefixtures("one_second_each")
def test_the_estimate_of_memory_holds_a_large_batch(tmp_path: Path) -> None:
    small, large = (dry_run.dry_run(config(tmp_path, steps=10, batch_size=size))["memory_gb"] for size in (4, 1024))
    assert small > data.true_size(config(tmp_path)).num_bytes / 1e9
    assert large - small > 1020 * 7 * 4 * 16 * 32 * 32 / 1e9 / 2


def test_activations_are_counted_per_example(tmp_path: Path) -> None:
    small, large = (
        dry_run._activations(Trainer(config(tmp_path, stand_in=True, batch_size=size), device=CPU)) for size in (4, 16)
    )
    assert sum(small) == pytest.approx(sum(large), rel=0.02)


def test_accumulated_minibatches_are_in_memory_one_at_a_time(tmp_path: Path) -> None:
    alone, several = (_kept(tmp_path, accumulate) for accumulate in (1, 4))
    assert alone == several


def _kept(tmp_path: Path, accumulate: int) -> list[int]:
    return sorted(
        dry_run._activations(
            Trainer(config(tmp_path, stand_in=True, batch_size=4, compute__accumulate=accumulate), device=CPU)
        )
    )


@pytest.mark.usefixtures("one_second_each")
def test_accumulated_minibatches_take_their_time_and_one_minibatchs_memory(tmp_path: Path) -> None:
    one, sixteen = (
        dry_run.dry_run(config(tmp_path, steps=10, batch_size=64, workers=2, compute__accumulate=accumulate))
        for accumulate in (1, 16)
    )
    assert one["train_s"] == 10 * 2 * 64 / dry_run.BATCH_SIZE
    assert sixteen["train_s"] == 10 * 2 * 16 * 64 / (
        dry_run.ACCUMULATE * dry_run.BATCH_SIZE
    )  # a pass of the trial has two minibatches
    assert sixteen["sent_gb"] == one["sent_gb"]
    assert sixteen["memory_gb"] == pytest.approx(one["memory_gb"], rel=0.1)


def test_the_largest_run_of_dgc_can_be_tried() -> None:
    """32 workers of 8 minibatches: more samples a step than there are stand-ins."""
    large = find(load("dgc", "imagenet_resnet50").experiments(), "gpus=256 as 32 nodes DGC wm5")[0].config
    tiny = dry_run.shrunk({**large, "stand_in": True})
    assert (large["compute"]["accumulate"], large["workers"], tiny["compute"]["accumulate"]) == (8, 32, 2)
    dataset = data.stand_in(tiny, CPU)
    assert (
        Order(
            dataset.num_train, tiny["batch_size"], tiny["workers"], 1, accumulate=tiny["compute"]["accumulate"]
        ).steps_per_epoch
        == 1
    )


@pytest.mark.slow
@given(
    update_at=st.lists(st.integers(0, 40), max_size=4).map(lambda steps: sorted(set(steps))),
    update_every=st.integers(0, 12),
    steps=st.integers(1, 40),
)
def test_updates_are_counted_as_the_workers_schedule_them(update_at: list[int], update_every: int, steps: int) -> None:
    method = resolving.resolve({"method": "alq"})["method"] | {"update_at": update_at, "update_every": update_every}
    workers = Workers("alq", sections.named_method({"method": method}), 2, {"weight": torch.Size([3])}, 0, CPU)
    (levels,) = workers.levels.every
    assert dry_run.num_updates(method, steps) == sum(levels.next_update(step) == step for step in range(steps))


def test_fixed_levels_are_never_updated() -> None:
    assert dry_run.num_updates(resolving.resolve({"method": "qsgdinf"})["method"], 100) == 0


@pytest.mark.parametrize("name", ["digits", "logreg5"])
def test_the_true_size_is_what_the_reader_gives(name: str) -> None:
    chosen = resolving.resolve({"data": name})
    size, dataset = data.true_size(chosen), data.load(chosen, "cpu")
    assert (size.num_train, size.num_test) == (dataset.num_train, dataset.num_test)
    parts = [part for split in ("train", "test") for part in dataset._splits[split]]  # type: ignore[attr-defined]
    assert size.num_bytes == sum(part.nbytes for part in parts)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (90, "90 s"),
        (5400, "1.5 h"),
        (48 * 3600, "48 h"),
        (50 * 3600, "2.1 days"),
        (7932 * 3600, "330 days"),
    ],
)
def test_long_times_are_in_days(seconds: float, text: str) -> None:
    assert dry_run.duration(seconds) == text


def test_an_interrupt_leaves_with_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(config: dict[str, Any]) -> dict[str, float]:
        raise KeyboardInterrupt

    monkeypatch.setattr(dry_run, "dry_run", interrupted)
    assert dry_run.main([]) == status.EXIT_INTERRUPTED == 130
    assert "interrupted" in capsys.readouterr().err
