"""The trainer: SuperSGD is SGD on the joined batch, schedules at the exact step, samples of workers, measuring."""

import copy
from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.errors import NonFiniteError
from settings import resolving
from train import models
from train.logs.run_log import Log
from train.process.status import Status
from train.steps import optim
from train.steps.order import Order, generator
from train.steps.train_loop import run
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
SMALL = {"data": "digits", "model": "cnn", "batch_size": 8}


def trainer(**settings) -> Trainer:
    return Trainer(
        resolving.resolve(SMALL | {key.replace("__", "."): value for key, value in settings.items()}), device=CPU
    )


def test_supersgd_is_sgd_on_the_joined_batch():
    ours = trainer(method="supersgd", workers=3)
    model = copy.deepcopy(ours.model)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for step in range(5):
        ours.train_step()
        batches = [ours.data.train_batch(ours.order.indices(step, w), generator(1, step, w, "train")) for w in range(3)]
        plain.zero_grad()
        cross_entropy(model(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])).backward()
        plain.step()
    for mine, theirs in zip(ours.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "topk", "method__scope": "tensor"},
        {"method": "qsgdinf", "method__scope": "tensor", "optim": "adamw"},
        {"method": "supersgd", "exchange__local_steps": 2},
    ],
)
def test_a_parameter_that_no_worker_uses_stays_as_plain_pytorch_leaves_it(settings, monkeypatch):
    plain, build = trainer(workers=2, **settings), models.without_weights_file

    def with_one_more(*arguments):
        model = build(*arguments)
        model.register_parameter("never", torch.nn.Parameter(torch.ones(30)))
        return model

    monkeypatch.setattr(models, "without_weights_file", with_one_more)
    ours, resumed = trainer(workers=2, **settings), trainer(workers=2, **settings)
    for step in range(4):
        for each in (plain, ours):
            each.train_step()
        if step == 1:
            resumed.load_state_dict(copy.deepcopy(ours.state_dict()))
        elif step > 1:
            resumed.train_step()
    for each in (ours, resumed):
        found = each.state_dict()["model"]  # under weight decay, too, which 0 as a gradient would bring about
        assert bool((found.pop("never") == 1).all())
        assert all(torch.equal(found[name], tensor) for name, tensor in plain.state_dict()["model"].items())


def test_step_decay_at_the_exact_step():
    config = resolving.resolve({"schedule": "step", "schedule.at": [3, 5], "schedule.factor": 0.1})
    assert [round(optim.learning_rate(config, step), 6) for step in range(7)] == [
        0.1,
        0.1,
        0.1,
        0.01,
        0.01,
        0.001,
        0.001,
    ]
    ours = trainer(method="sgd", schedule="step", schedule__at=[2])
    rates = []
    for _ in range(4):
        ours.train_step()
        rates.append(ours.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01])


def test_exponential_decay():
    config = resolving.resolve({"schedule": "exponential", "schedule.factor": 0.5, "schedule.period": 10})
    assert optim.learning_rate(config, 20) == pytest.approx(0.025)
    assert optim.learning_rate(config, 5) == pytest.approx(0.1 * 0.5**0.5)


def test_nesterov_reaches_the_optimizer_and_needs_momentum():
    assert trainer(method="sgd", optim__nesterov=True).optimizer.param_groups[0]["nesterov"]
    with pytest.raises(ValueError, match="momentum above 0"):
        trainer(method="sgd", optim__nesterov=True, optim__momentum=0.0)


def test_workers_see_different_samples_and_an_epoch_sees_each_once():
    order = Order(num_train=103, batch_size=5, workers=4, seed=1)
    assert order.steps_per_epoch == 5
    epochs = [torch.cat([order.indices(step, w) for step in range(5 * e, 5 * e + 5) for w in range(4)]) for e in (0, 1)]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 100
    assert epochs[0].tolist() != epochs[1].tolist()
    assert order.indices(0, 0).tolist() != Order(103, 5, 4, seed=2).indices(0, 0).tolist()


def test_more_workers_than_the_data_can_feed():
    with pytest.raises(ValueError, match="training set has 1442"):
        trainer(workers=200)


def test_the_global_generator_is_untouched():
    before = torch.random.get_rng_state()
    ours = trainer(method="qsgd", measure__every=1, measure__num_samples=2)
    ours.train_step()
    ours.measure()
    assert torch.equal(before, torch.random.get_rng_state())


def test_measuring_changes_nothing_in_training():
    plain, measured = (
        Trainer(
            resolving.resolve(
                {
                    "data": "cifar10",
                    "model": "resnet8",
                    "stand_in": True,
                    "batch_size": 2,
                    "method": "trn",
                    "measure.every": 1,
                    "measure.num_samples": 2,
                }
            ),
            device=CPU,
        )
        for _ in range(2)
    )
    for _ in range(2):
        plain.train_step()
        measured.measure()
        measured.train_step()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, measured.model.state_dict()[name]), name


def test_levels_follow_the_schedule():
    ours = trainer(
        method="alq", method__update_at=[1, 3], method__update_every=6, method__num_samples=2, method__bucket_size=1024
    )
    compressor, changed = ours.workers.compressor, []
    assert isinstance(compressor, AdaptiveQuantizer)
    for step in range(13):
        before = compressor.levels.values
        ours.train_step()
        if (before != compressor.levels.values).any():
            changed.append(step)
    assert changed == [1, 3, 6, 12]


@pytest.mark.parametrize("name", ["alq", "amq"])
def test_the_first_mean_errs_no_more_than_later_ones(name):
    """Default settings: levels are fitted to the first gradient before it is sent, and not again before step 100."""
    ours = trainer(method=name, batch_size=16)
    errors, levels = [], []
    for step in range(4):
        own, _ = ours.gradients.of_workers(range(4), step, ours.order, "train")
        exact = torch.stack(list(own.values())).mean(dim=0)
        mean = ours.train_step().mean
        errors.append(float((mean - exact).square().sum() / exact.square().sum()))
        levels.append(ours.workers.compressor.levels.values.tolist())
    assert max(errors) < 0.5 and errors[0] < 2 * max(errors[1:])
    assert ours.workers.compressor.fitted and all(row == levels[0] for row in levels)


@pytest.mark.slow
def test_a_run_shorter_than_the_second_update_of_levels_learns():
    """Default settings of the method; with levels of a normal distribution until step 100 such a run diverges."""
    ours = trainer(method="alq", batch_size=16, optim__lr=0.1, schedule="constant", steps=80)
    assert ours.evaluate("train")["Tloss"] > 2
    for _ in range(80):
        ours.train_step()
    ours.sync_buffers()
    assert ours.evaluate("train")["Tloss"] < 0.3


def test_sgd_trajectory_trains_like_sgd_whatever_is_measured():
    sgd = trainer(method="sgd")
    measured = trainer(method="nuqsgd", trajectory="sgd", measure__every=2, measure__num_samples=2)
    for step in range(3):
        if step % 2 == 0:
            values = measured.measure().scalars
        sgd.train_step()
        measured.train_step()
    assert values["est_var"] > values["super_var"]
    for mine, theirs in zip(sgd.model.parameters(), measured.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "settings", [{"method": "alq", "method__update_at": [0]}, {"method": "trn"}, {"method": "supersgd"}]
)
def test_a_gradient_that_is_not_finite_is_named(settings):
    ours = trainer(**settings)
    with torch.no_grad():
        list(ours.model.parameters())[-1][0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"step 0: the gradient of 'conv1.weight' on worker 0"):
        ours.train_step()
    with pytest.raises(NonFiniteError, match=r"step 0: while measuring.*'conv1.weight' on worker 0"):
        ours.measure()


def test_a_fresh_sample_that_is_not_finite_is_named():
    ours = trainer(method="amq", method__update_at=[0], method__statistics="fresh", method__num_samples=2)
    with torch.no_grad():
        list(ours.model.parameters())[-1][0] = float("nan")
    with pytest.raises(
        NonFiniteError, match=r"step 0: the gradient of 'conv1.weight' on worker 0, sampled for the level update"
    ):
        ours.train_step()


class Kept:
    """Stands for a log."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, float]] = {}
        self.histograms: list[tuple[int, str]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.values.setdefault(step, {}).update(values)

    def histogram(self, step: int, tag: str, edges: np.ndarray, masses: np.ndarray) -> None:
        assert len(edges) == len(masses) + 1
        self.histograms.append((step, tag))

    def line(self, text: str) -> None: ...

    def progress(self, step: int, steps: int, phase: str = "") -> None: ...

    def flush(self) -> None: ...


def test_what_an_exchange_takes_is_logged(tmp_path):
    logs = {}
    for collective in ("gather", "two_stage"):
        log = Kept()
        more = {
            "method": "qsgd",
            "method__bucket_size": 1024,
            "steps": 4,
            "log_every": 2,
            "eval_every": 4,
            "eval_train": False,
        }
        (tmp_path / collective).mkdir()
        ours = trainer(**more, exchange__collective=collective)
        run(ours, tmp_path / collective, Status(None, 4, "cpu", 1), cast(Log, log))
        logs[collective] = log.values
        for values in (log.values[2], log.values[4]):
            parts = [values[f"time/{what}_s"] for what in ("encode", "decode", "optimizer")]
            assert 0 < min(parts) < sum(parts) < values["time/step_s"]
            assert "comm/network_bytes" not in values
        assert log.values[4]["comm/bytes"] == 2 * log.values[2]["comm/bytes"] == 4 * ours.totals.bytes / 4
    one, two = logs["gather"][4], logs["two_stage"][4]
    assert "comm/means_bits_per_coordinate" not in one
    assert two["comm/means_bits_per_coordinate"] == pytest.approx(
        4 / 4, rel=0.05
    )  # a quarter of the coordinates at 4 bits
    first = two["comm/bits_per_coordinate"] - two["comm/means_bits_per_coordinate"]
    assert first == pytest.approx(one["comm/bits_per_coordinate"], rel=0.02)


def test_histograms_are_logged_at_measurements_but_not_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("train.logs.run_log.MOST_HISTOGRAMS", 3)
    for steps, expected in {3: [0, 1, 2], 7: [0, 3, 6]}.items():
        log = Kept()
        (tmp_path / str(steps)).mkdir()
        more = {
            "method": "qsgdinf",
            "method__bucket_size": 1024,
            "eval_train": False,
            "measure__every": 1,
            "measure__num_samples": 2,
        }
        run(trainer(**more, steps=steps), tmp_path / str(steps), Status(None, steps, "cpu", 1), cast(Log, log))
        assert log.histograms == [(step, tag) for step in expected for tag in ("stats/coordinates", "stats/fit")]
        assert sum("est_var" in values for values in log.values.values()) == steps


def test_untrain_climbs():
    ours = trainer(method="sgd", untrain__steps=5, untrain__lr=0.01)
    before = ours.evaluate("test")["Vloss"]
    ours.untrain()
    assert ours.evaluate("test")["Vloss"] > before
