"""Rounds of local steps: DiLoCo as written by hand, the same bits in every split, and after a stop amid a round."""

from __future__ import annotations

import copy
import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from settings import resolving
from tests.train import small_runs
from tests.train.steps.test_resume import attempt
from tests.train.trainings import digests
from train.steps.order import generator
from train.steps.train_loop import Preempted
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
H = 4
BASE: dict[str, Any] = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 8,
    "workers": 2,
    "steps": 3 * H,
    "eval_every": 2 * H,
    "eval_train": False,
    "checkpoint_every": 3,
    "exchange.local_steps": H,
}
WITH_BUFFERS = {"data": "cifar10", "model": "resnet8", "stand_in": True, "batch_size": 2}


def config(method: str, **more: Any) -> dict[str, Any]:
    return resolving.resolve(BASE | {"method": method} | {key.replace("__", "."): of for key, of in more.items()})


def trainer(method: str, group: dist.ProcessGroup | None = None, **more: Any) -> Trainer:
    return Trainer(config(method, **more), device=CPU, group=group)


# --- the algorithm ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lr", "momentum", "nesterov"), [(0.7, 0.9, True), (1.0, 0.5, False)])
def test_it_is_diloco(lr: float, momentum: float, nesterov: bool) -> None:
    outer = {"exchange__outer_lr": lr, "exchange__outer_momentum": momentum, "exchange__nesterov": nesterov}
    ours = trainer("supersgd", optim="adamw", optim__clip_norm=0.5, **WITH_BUFFERS, **outer)
    common = copy.deepcopy(ours.model)
    outside = torch.optim.SGD(common.parameters(), lr=lr, momentum=momentum, nesterov=nesterov)
    models = [copy.deepcopy(common) for _ in range(2)]
    insides = [torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01) for model in models]
    for step in range(3 * H):
        result = ours.train_step()
        for worker, (model, inside) in enumerate(zip(models, insides, strict=True)):
            x, y = ours.data.train_batch(ours.order.indices(step, worker), generator(1, step, worker, "train"))
            inside.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            inside.step()
            assert result.losses[worker] == pytest.approx(float(loss.detach()), rel=1e-3)
        if (step + 1) % H == 0:
            for shared, *own in zip(common.parameters(), *(model.parameters() for model in models), strict=True):
                shared.grad = torch.stack([shared.detach() - p.detach() for p in own]).mean(0)
            outside.step()
            for model in models:
                for p, shared in zip(model.parameters(), common.parameters(), strict=True):
                    p.data.copy_(shared.detach())
    ours.sync_buffers()
    for mine, theirs in zip(ours.model.parameters(), common.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach(), theirs.detach(), atol=2e-4)
    for mine, theirs in zip(ours.model.buffers(), models[0].buffers(), strict=True):  # the first worker's own
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("overlap", "mixing"), [(0, 0.5), (1, 0.25), (3, 0.5)])
def test_fragments_are_streaming_diloco(overlap: int, mixing: float) -> None:
    streaming: dict[str, Any] = {"exchange__fragments": 2, "exchange__overlap": overlap}
    streaming |= {"exchange__mixing": mixing} if overlap else {}
    ours = trainer("supersgd", optim__momentum=0.5, optim__weight_decay=0.0, **streaming)
    models = [copy.deepcopy(ours.model) for _ in range(2)]
    insides = [torch.optim.SGD(model.parameters(), lr=ours.config["optim"]["lr"], momentum=0.5) for model in models]
    outer = {name: p.detach().clone() for name, p in models[0].named_parameters()}
    momentum = {name: torch.zeros_like(p) for name, p in outer.items()}
    sizes = np.array([p.numel() for p in outer.values()])
    middles = np.cumsum(sizes) - sizes / 2
    halves = [[name for name, at in zip(outer, middles, strict=True) if (at >= sizes.sum() / 2) == of] for of in (0, 1)]
    coming: list[tuple[int, dict[str, torch.Tensor]]] = []

    def moved(names: list[str]) -> dict[str, torch.Tensor]:
        of_workers = [{name: outer[name] - model.get_parameter(name).detach() for name in names} for model in models]
        return {name: (of_workers[0][name] + of_workers[1][name]) / 2 for name in names}

    def take(means: dict[str, torch.Tensor], stays: float) -> None:
        for name, mean in means.items():
            momentum[name] = 0.9 * momentum[name] + mean
            outer[name] = outer[name] - 0.7 * (mean + 0.9 * momentum[name])
            for model in models:
                p = model.get_parameter(name)
                p.data.copy_((1 - stays) * outer[name] + stays * p.data)

    for step in range(3 * H):
        ours.train_step()
        for worker, (model, inside) in enumerate(zip(models, insides, strict=True)):
            x, y = ours.data.train_batch(ours.order.indices(step, worker), generator(1, step, worker, "train"))
            inside.zero_grad()
            cross_entropy(model(x), y).backward()
            inside.step()
        if (step + 1) % (H // 2) == 0:
            coming.append((step + 1 + overlap, moved(halves[(step + 1) % H == 0])))
        while coming and coming[0][0] == step + 1:
            take(coming.pop(0)[1], mixing if overlap else 0.0)
    own = ours.state_dict()["local"]["workers"]
    for worker, model in enumerate(models):
        for name, p in model.named_parameters():
            np.testing.assert_allclose(own[worker]["parameters"][name], p.detach(), atol=1e-5)
    ours.sync_buffers()
    for name, p in ours.model.named_parameters():
        np.testing.assert_allclose(p.detach(), outer[name], atol=1e-5)
    before = digests(ours)
    ours.finish()
    for at, means in coming:  # the second half was sent at the very end, the first one half a round before it
        take(means, mixing if at < 3 * H + overlap else 0.0)
    outer |= {name: outer[name] - mean for name, mean in moved(halves[0]).items()}  # the mean of the models
    ended = ours.state_dict()["finished"]
    for name, p in outer.items():
        np.testing.assert_allclose(ended[name], p, atol=1e-5)
    assert {name: of for name, of in digests(ours).items() if not name.startswith(".finished.")} == before


def test_amid_a_round_workers_differ_and_the_synchronized_model_is_what_is_shown() -> None:
    ours = trainer("alq")
    start = [p.detach().clone() for p in ours.model.parameters()]
    for _ in range(H - 1):
        assert not ours.train_step().bytes_per_worker
    ours.sync_buffers()
    assert all(torch.equal(p, before) for p, before in zip(ours.model.parameters(), start, strict=True))
    state = ours.state_dict()
    saved = [state["model"][name] for name in ours.parameters]  # what mode=evaluate reads
    assert all(torch.equal(p, before) for p, before in zip(saved, start, strict=True))
    own = [torch.cat([p.flatten() for p in of["parameters"].values()]) for of in state["local"]["workers"].values()]
    assert not torch.equal(own[0], own[1])
    before = digests(ours)
    ours.evaluate("test")
    assert digests(ours) == before
    assert ours.train_step().bytes_per_worker == ours.totals.bytes > 0
    workers = ours.state_dict()["local"]["workers"]
    own = [torch.cat([p.flatten() for p in of["parameters"].values()]) for of in workers.values()]
    assert torch.equal(own[0], own[1]) and not torch.equal(own[0], torch.cat([p.flatten() for p in start]))


def test_levels_follow_the_moves_of_every_update() -> None:
    ours = trainer("alq", method__update_at=[0, 2], method__num_samples=1)
    seen = []
    for _ in range(3 * H):
        ours.train_step()
        seen.append(tuple(ours.workers.compressor.levels.values))
    assert len(set(seen)) == 3  # those of a normal distribution, of the first moves and of the third ones
    assert seen[H - 2] != seen[H - 1] == seen[3 * H - 2] != seen[3 * H - 1]


def test_levels_of_one_layer_are_updated_whatever_part_it_is_sent_with() -> None:
    layers = ["output.* = alq update_at=[1] update_every=2 num_samples=1"]
    ours = trainer("supersgd", layers=layers, exchange__fragments=2)
    (of_layer,) = ours.workers.levels.every
    assert [of_layer.has(own) for part in ours.workers.parts(2, H) for own in part.layout.segments].count(True) == 1
    for _ in range(3 * H):
        ours.train_step()
    assert of_layer.compressor.fitted


def test_means_on_their_way_stay_with_their_parameters_where_a_fork_has_other_layers() -> None:
    streaming: dict[str, Any] = {"exchange__fragments": 2, "exchange__overlap": 3}
    parent = trainer("supersgd", **streaming)
    for _ in range(H):
        parent.train_step()
    layers = ["output.* = topk ratio=0.1 scope=model", "conv1.* = qsgd scope=model"]
    fork = trainer("supersgd", layers=layers, **streaming)
    fork.fork(parent.state_dict(), same_method=False)
    ours, theirs = fork.state_dict()["local"]["sent"], parent.state_dict()["local"]["sent"]
    assert ours["steps"] == theirs["steps"] and sum(map(bool, ours["steps"].values())) == 2
    assert torch.equal(ours["means"], theirs["means"]) and theirs["means"].count_nonzero()


# --- stopped ------------------------------------------------------------------------------------------------------

STREAMING: dict[str, Any] = {"exchange__fragments": 2, "exchange__overlap": 1, "method__ratio": 0.1}


def test_a_run_that_ended_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    parent = attempt(config("topk", **STREAMING, steps=2 * H), tmp_path / "parent")
    saved = torch.load(tmp_path / "parent" / "checkpoint.pt", weights_only=True)
    own = parent.state_dict()["local"]["workers"]
    assert not torch.equal(own[0]["parameters"]["output.weight"], own[1]["parameters"]["output.weight"])
    assert not torch.equal(saved["finished"]["output.weight"], saved["model"]["output.weight"])
    at_once = attempt(config("topk", **STREAMING, steps=4 * H), tmp_path / "at_once")
    forked = trainer("topk", **STREAMING, steps=4 * H)
    forked.fork(saved, same_method=True)
    for _ in range(2 * H):
        forked.train_step()
    forked.finish()
    assert digests(forked) == digests(at_once)


def test_a_preempted_run_does_not_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config("topk", **STREAMING)
    undisturbed = attempt(settings, tmp_path / "undisturbed")
    with pytest.raises(Preempted, match="step 12 of 12"):  # before its last evaluation
        attempt(settings, tmp_path / "stopped", stop_at=3 * H)
    saved = torch.load(tmp_path / "stopped" / "checkpoint.pt", weights_only=True)
    assert (saved["step"], saved["evaluated"], "finished" in saved) == (3 * H, False, False)
    seen: list[torch.Tensor] = []
    evaluate = Trainer.evaluate

    def looked_at(self: Trainer, *how: Any) -> dict[str, float]:
        seen.append(self.model.get_parameter("output.weight").detach().clone())
        return evaluate(self, *how)

    monkeypatch.setattr(Trainer, "evaluate", looked_at)
    resumed = attempt(settings, tmp_path / "stopped")
    assert digests(resumed) == digests(undisturbed)
    assert [torch.equal(weight, resumed.state_dict()["finished"]["output.weight"]) for weight in seen] == [True]


def test_a_checkpoint_without_a_workers_model_is_refused() -> None:
    ours = trainer("topk", optim__momentum=0.5)
    ours.train_step()
    state = ours.state_dict()
    momenta = state["local"]["workers"][1]["optimizer"]
    assert [list(of) for of in momenta.values()] == [["momentum_buffer"]] * len(ours.parameters)
    for damage, said in (
        (lambda own: own["workers"].pop(1), "it has no local.workers.1"),
        (lambda own: own.update(momentum=torch.zeros(3)), r"its local.momentum is float32\[3\], where this run has"),
        (lambda own: own["workers"][0]["parameters"].popitem(), "it has no local.workers.0.parameters.output.bias"),
        (lambda own: own["workers"][0]["optimizer"][0].update(momentum_buffer=1), "local.workers.0.optimizer.0.mom"),
    ):
        broken = copy.deepcopy(state)
        damage(broken["local"])
        with pytest.raises(ValueError, match=said):
            trainer("topk", optim__momentum=0.5).load_state_dict(broken)


# --- what is logged and refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fragments", [1, 2])
def test_bits_are_those_of_a_step_and_bytes_come_with_a_round(fragments: int, tmp_path: Path) -> None:
    more = {"exchange.local_steps": 2, "log.csv": True, "method.rounding": "stochastic"}
    more |= {"exchange.fragments": fragments} if fragments > 1 else {}
    assert small_runs.run(tmp_path, **more) == 0
    with open(tmp_path / "scalars.csv") as file:
        rows = [(row["tag"], int(row["step"]), float(row["value"])) for row in csv.DictReader(file)]
    sent = {step: value for tag, step, value in rows if tag == "comm/bytes"}
    told = {step: value for tag, step, value in rows if tag == "comm/bits_per_coordinate"}
    size = sum(p.numel() for p in trainer("supersgd").model.parameters())
    assert (sent[1] == 0, sent[2] == sent[3]) == (fragments == 1, fragments == 1) and sent[2] < sent[4]
    assert told == pytest.approx({2: 8 * sent[2] / size / 2, 4: 8 * (sent[4] - sent[2]) / size / 2})
    assert 3 < 2 * told[4] < 3.5
    assert [step for tag, step, _ in rows if tag == "loss"] == [1, 2, 3, 4]


def test_divergence_amid_a_round_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert small_runs.run(tmp_path, **{"exchange.local_steps": 4, "eval_every": 4, "optim.lr": 1e38}) == 3
    assert capsys.readouterr().err.startswith("main.py: step ")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"exchange.local_steps": 0}, "exchange.local_steps=0: must be at least 1"),
    (
        {"exchange.local_steps": 1, "exchange.outer_lr": 0.5},
        "exchange.outer_lr=0.5: has no effect with exchange.local_steps=1; it is read with local_steps>=2 only",
    ),
    ({"steps": 10}, "steps=10: must be a multiple of exchange.local_steps=4, as only at the end of a round"),
    ({"eval_every": 6}, "eval_every=6: must be a multiple of exchange.local_steps=4"),
    ({"exchange.fragments": 5}, "exchange.fragments=5: must be at most exchange.local_steps=4, one in a local step"),
    ({"exchange.overlap": 4}, "exchange.overlap=4: must be fewer local steps than exchange.local_steps=4"),
    ({"exchange.mixing": 0.2}, "exchange.mixing=0.2: has no effect with exchange.overlap=0"),
    ({"method": "sgd"}, "method=sgd sends one worker's move alone"),
    ({"method": "dgc"}, "momentum correction .*; legal here: feedback.kind=error, ef21, none"),
    ({"method.statistics": "fresh"}, "method.statistics='fresh': draws gradients"),
    ({"layers": ["conv1 = amq statistics=fresh"]}, "statistics='fresh': draws gradients"),
    ({"measure.every": 4}, "measure.every=4: measures the method on gradients"),
    ({"measure.every": 4, "trajectory": "sgd"}, "exchange.local_steps=4: has no effect with trajectory='sgd'"),
    ({"optim.scale_lr": "sqrt"}, "optim.scale_lr='sqrt': .* a step is along one worker's gradient"),
    ({"compute.precision": "fp16"}, "compute.precision='fp16': .*; legal here: fp32, bf16"),
    ({"tensors.weights": "bf16"}, "tensors.weights='bf16': with exchange.local_steps=4 every worker has a model"),
]


@pytest.mark.parametrize(("more", "said"), REFUSED, ids=[" ".join(more) for more, _ in REFUSED])
def test_what_does_not_go_with_rounds_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolving.resolve(BASE | more)
