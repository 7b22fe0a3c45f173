"""Optimizers, what they spare and cut off, and rates that grow with workers: against torch's own, and by hand."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from settings import resolving
from tests.tiers import few
from tests.train.steps.test_resume import Killed, attempt, config
from tests.train.trainings import digests
from train.logs.run_log import Log
from train.process import checkpoint
from train.process.status import Status
from train.steps import optim
from train.steps.train_loop import Preempted, run
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
DIGITS = {"data": "digits", "model": "cnn", "batch_size": 8, "workers": 2, "method": "supersgd"}
RESNET = {"data": "cifar10", "model": "resnet8", "stand_in": True, "batch_size": 2, "workers": 2, "method": "supersgd"}


def trainer(base: dict, **settings) -> Trainer:
    return Trainer(
        resolving.resolve(base | {key.replace("__", "."): value for key, value in settings.items()}), device=CPU
    )


def mean_gradient(ours: Trainer) -> list[torch.Tensor]:
    """The mean of the workers' gradients of the next step."""
    gradients, _ = ours.gradients.of_workers(range(ours.config["workers"]), ours.step, ours.order, "train")
    return ours.gradients.layout.views(torch.stack(list(gradients.values())).mean(dim=0))


def follows(
    ours: Trainer, plain: torch.optim.Optimizer, model: nn.Module, clip_norm: float, rates: list[float]
) -> None:
    """Assert that the trainer's steps are those of torch's optimizer, its clipping and these rates."""
    for step, rate in enumerate(rates):
        for parameter, gradient in zip(model.parameters(), mean_gradient(ours), strict=True):
            parameter.grad = gradient.clone()
        before = nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        assert before > clip_norm, "the clipping must act"
        for group in plain.param_groups:
            group["lr"] = rate
        plain.step()
        ours.train_step()
        for (name, mine), theirs in zip(ours.model.named_parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(
                mine, theirs, rtol=1e-5, atol=1e-6, msg=lambda text, at=(step, name): f"{at}: {text}"
            )


# --- whole recipes ------------------------------------------------------------------------------------------------


def test_a_transformers_recipe_is_torchs_own() -> None:
    """AdamW, warm-up, cosine, clipping, and no decay for norms and biases, which are told apart here by their names."""
    settings = {
        "optim__beta2": 0.95,
        "optim__weight_decay": 3.0,
        "optim__clip_norm": 0.5,
        "schedule": "cosine",
        "steps": 4,
    }
    warm = {"schedule__warmup_steps": 2, "schedule__warmup_factor": 0.5}
    ours = trainer(RESNET, optim="adamw", optim__lr=0.02, optim__decay_norms=False, **settings, **warm)
    model = copy.deepcopy(ours.model)
    spared = {
        name: p for name, p in model.named_parameters() if p.dim() == 1
    }  # in a ResNet those are the norms' and the biases
    assert 10 < len(spared) < len(list(model.parameters())) - 5
    others = [p for name, p in model.named_parameters() if name not in spared]
    groups = [{"params": others, "weight_decay": 3.0}, {"params": list(spared.values()), "weight_decay": 0.0}]
    follows(ours, torch.optim.AdamW(groups, betas=(0.9, 0.95)), model, 0.5, [0.01, 0.015, 0.02, 0.01])


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_with_clipping_and_decay_of_matrices_is_torchs_own(nesterov: bool) -> None:
    ours = trainer(
        DIGITS, optim__decay_norms=False, optim__weight_decay=1.5, optim__nesterov=nesterov, optim__clip_norm=0.2
    )
    model = copy.deepcopy(ours.model)
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    others = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    groups = [{"params": others, "weight_decay": 1.5}, {"params": biases}]
    follows(ours, torch.optim.SGD(groups, 0.1, 0.9, nesterov=nesterov), model, 0.2, [0.1] * 4)


def test_adam_and_adamw_decay_apart() -> None:
    """AdamW shrinks by lr * decay after one step of a zero gradient, Adam goes a whole lr whatever the decay."""
    for name, want in (("adam", 0.9), ("adamw", 0.95)):
        chosen = resolving.resolve({"optim": name, "optim.lr": 0.1, "optim.weight_decay": 0.5})
        model = nn.Linear(1, 1, bias=False)
        nn.init.ones_(model.weight)
        built = optim.build(chosen, dict(model.named_parameters()), model)
        model.weight.grad = torch.zeros(1, 1)
        built.step()
        assert model.weight.item() == pytest.approx(want, rel=1e-5)


# --- what does not decay ------------------------------------------------------------------------------------------


def spared(model: nn.Module) -> set[str]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for p in optim.without_decay(model)}


def test_norms_and_biases_do_not_decay_whatever_their_shape() -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert spared(block) == {
        "self_attn.in_proj_bias", "self_attn.out_proj.bias", "linear1.bias", "linear2.bias",
        "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
    }  # fmt: skip
    norms = nn.ModuleList(
        [nn.BatchNorm3d(2), nn.SyncBatchNorm(2), nn.InstanceNorm1d(2, affine=True), nn.GroupNorm(1, 2), nn.RMSNorm(2)]
    )
    assert spared(norms) == {f"{at}.{name}" for at in range(4) for name in ("weight", "bias")} | {"4.weight"}
    assert spared(nn.LayerNorm([2, 3])) == {"weight", "bias"}  # two-dimensional, and still a norm
    assert spared(
        nn.ModuleDict({"table": nn.Embedding(3, 1), "row": nn.Linear(3, 1), "gain": nn.ParameterList([torch.ones(4)])})
    ) == {"row.bias"}
    assert spared(nn.GRU(2, 2)) == {"bias_ih_l0", "bias_hh_l0"}


def test_a_gpt_decays_its_matrices_and_embeddings_alone() -> None:
    model = trainer(
        {"data": "text", "model": "gpt", "model.layers": 1, "stand_in": True, "workers": 1, "method": "sgd"}
    ).model
    matrices = {"attention.inputs", "attention.project", "up", "project"}
    decays = {name for name, _ in model.named_parameters()} - spared(model)
    assert decays == {"tokens.weight", "places.weight", "output.weight"} | {
        f"blocks.0.{name}.weight" for name in matrices
    }


def test_weights_that_two_modules_share_are_listed_once() -> None:
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4))
    model[1].weight = model[0].weight
    built = optim.build(resolving.resolve({"optim.decay_norms": False}), dict(model.named_parameters()), model)
    assert [[p.shape for p in group["params"]] for group in built.param_groups] == [[(4, 3)], [(4,)]]
    assert [group["weight_decay"] for group in built.param_groups] == [1e-4, 0.0]


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_in_the_workers_spares_the_same(nesterov: bool) -> None:
    """Momentum correction where everything is sent is SGD; only the decay's momentum stays here."""
    decay = {"optim__decay_norms": False, "optim__weight_decay": 0.5, "optim__nesterov": nesterov}
    everything = {"method": "topk", "method__ratio": 1.0, "feedback__kind": "momentum", "feedback__masking": False}
    ours, plain = trainer(DIGITS, **everything, **decay), trainer(DIGITS, **decay)
    all_decay = trainer(DIGITS, **everything, **decay | {"optim__decay_norms": True})
    assert isinstance(ours.optimizer, optim.DecaySGD) and len(ours.optimizer.param_groups) == 2
    for _ in range(5):
        for each in (ours, plain, all_decay):
            each.train_step()
    for mine, theirs in zip(ours.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    moved = {
        name
        for (name, p), q in zip(ours.model.named_parameters(), all_decay.model.parameters(), strict=True)
        if (p - q).abs().max() > 1e-3
    }
    assert {name for name in moved if name.endswith("weight")} == {
        name for name in ours.parameters if name.endswith("weight")
    }
    momenta = ours.optimizer.state_dict()["state"]
    assert len(momenta) == sum(name.endswith("weight") for name in ours.parameters)


def test_groups_where_only_some_layers_have_their_momentum_in_the_workers() -> None:
    ours = trainer(DIGITS, method="qsgdinf", layers=["conv1 = dgc ratio=0.5"], optim__decay_norms=False)
    marks = [
        (group["in_workers"], group.get("decays", True), len(group["params"])) for group in ours.optimizer.param_groups
    ]
    num_layers = len(ours.parameters) // 2
    assert marks == [(True, True, 1), (True, False, 1), (False, True, num_layers - 1), (False, False, num_layers - 1)]
    ours.train_step()


# --- clipping -----------------------------------------------------------------------------------------------------


def clip(vector: list[float] | torch.Tensor, **values: float) -> torch.Tensor:
    return optim.clipped({"clip_norm": 0.0, "clip_value": 0.0, **values}, torch.as_tensor(vector, dtype=torch.float32))


def test_clipping_by_hand() -> None:
    assert clip([3, 4], clip_norm=1).tolist() == pytest.approx([0.6, 0.8])
    assert clip([3, -4, 0.5], clip_value=2).tolist() == [2, -2, 0.5]
    assert clip([3, -4, 0], clip_value=3, clip_norm=math.sqrt(2)).tolist() == pytest.approx(
        [1, -1, 0]
    )  # first the value, then the norm
    assert clip([0, 0], clip_norm=1).tolist() == [0, 0]
    short = torch.tensor([0.1, -0.7])
    assert torch.equal(clip(short, clip_norm=0.75), short) and clip(short) is short


def test_no_finite_gradient_is_too_long_to_be_clipped() -> None:
    assert clip([3e38, -3e38, 3e38, 3e38], clip_norm=2).tolist() == pytest.approx([1, -1, 1, 1])
    assert clip([3e-30, 4e-30], clip_norm=1e-30).tolist() == pytest.approx([6e-31, 8e-31])


def test_clipping_a_vector_of_several_parts_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "PART", 1000)
    vector = torch.randn(4321, generator=torch.Generator().manual_seed(1))
    for norm in (0.5, 60.0, 70.0):
        theirs = nn.Parameter(vector.clone())
        theirs.grad = vector.clone()
        nn.utils.clip_grad_norm_([theirs], norm)
        torch.testing.assert_close(clip(vector, clip_norm=norm), theirs.grad, rtol=1e-5, atol=0)
    theirs.grad = vector.clone()
    nn.utils.clip_grad_value_([theirs], 0.3)
    assert torch.equal(clip(vector, clip_value=0.3), theirs.grad)


def test_the_value_is_cut_off_in_training() -> None:
    ours = trainer(DIGITS, optim__clip_value=1e-4, optim__momentum=0.0, optim__weight_decay=0.0)
    before = [p.detach().clone() for p in ours.parameters.values()]
    ours.train_step()
    furthest = max(
        float((old - new.detach()).abs().max()) for old, new in zip(before, ours.parameters.values(), strict=True)
    )
    assert furthest == pytest.approx(1e-5, rel=1e-2)


# --- rates and workers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "rate"), [("none", 0.1), ("linear", 0.8), ("sqrt", 0.1 * math.sqrt(8))])
def test_the_rate_grows_with_workers(rule: str, rate: float) -> None:
    scaled = resolving.resolve(
        {"workers": 8, "optim.scale_lr": rule, "schedule": "step", "schedule.at": [5], "optim": "sgd"}
    )
    assert [optim.learning_rate(scaled, step) for step in (0, 5)] == pytest.approx([rate, 0.1 * rate])
    first = {"method": "qsgdinf", "exchange.collective": "server", "exchange.num_aggregate": 4}
    averaged = resolving.resolve({**first, "workers": 9, "optim.scale_lr": rule})
    assert optim.learning_rate(averaged, 0) == pytest.approx({"none": 0.1, "linear": 0.4, "sqrt": 0.2}[rule])
    alone = resolving.resolve({"workers": 1, "optim.scale_lr": rule})
    assert optim.learning_rate(alone, 0) == 0.1


class Kept(Log):
    """The values that would be logged."""

    def __init__(self) -> None:
        super().__init__(None, 1)
        self.kept: list[Mapping[str, float]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.kept.append(values)


def test_the_true_rate_is_used_and_logged(tmp_path: Path) -> None:
    warm = {"schedule": "cosine", "schedule__warmup_steps": 4, "schedule__warmup_factor": 0.5, "steps": 8}
    log = Kept()
    ours, by_hand = (
        trainer(DIGITS, optim__scale_lr="linear", optim__lr=0.05, log_every=1, eval_every=0, **warm),
        trainer(DIGITS, optim__lr=0.1, **warm),
    )
    with pytest.raises(Preempted):
        run(ours, tmp_path, Status(None, 8, "cpu", 1), log, lambda: ours.step == 4)  # asked after every step
    assert [values["lr"] for values in log.kept if "lr" in values] == pytest.approx([0.05, 0.0625, 0.075, 0.0875])
    assert ours.optimizer.param_groups[0]["lr"] == log.kept[-1]["lr"]
    for _ in range(4):
        by_hand.train_step()
    for mine, theirs in zip(ours.parameters.values(), by_hand.parameters.values(), strict=True):
        assert torch.equal(mine, theirs)


# --- going on -----------------------------------------------------------------------------------------------------

OLD_GROUPS = {  # what checkpoints held of each group before decay could spare a parameter
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}


def test_what_groups_are_set_to_is_the_settings_business(tmp_path: Path) -> None:
    undisturbed = attempt(config("qsgdinf"), tmp_path / "undisturbed")
    with pytest.raises(Killed):
        attempt(config("qsgdinf"), tmp_path / "odd", kill_at=5)
    saved = torch.load(tmp_path / "odd" / checkpoint.FILE, weights_only=True)
    for group in saved["optimizer"]["param_groups"]:
        group |= {"momentum": "much", "weight_decay": 3.0}
    checkpoint.save(tmp_path / "odd", saved)
    assert digests(attempt(config("qsgdinf"), tmp_path / "odd")) == digests(undisturbed)


@few(2, "name", ["sgd", "adam", "dgc"])
def test_checkpoints_from_before_decay_could_spare_go_on(name: str, tmp_path: Path) -> None:
    """One group of all parameters in their order, with the keys of torch's own, and DGC's mark."""
    settings = config("dgc") if name == "dgc" else config("qsgdinf", optim=name)
    undisturbed = attempt(settings, tmp_path / "undisturbed")
    with pytest.raises(Killed):
        attempt(settings, tmp_path / "older", kill_at=5)
    saved = torch.load(tmp_path / "older" / checkpoint.FILE, weights_only=True)
    kind = OLD_GROUPS.get(name, torch.optim.SGD)
    older = kind([nn.Parameter(torch.zeros(1)) for _ in undisturbed.parameters], lr=0.1).state_dict()["param_groups"]
    (group,) = saved["optimizer"]["param_groups"]
    assert group["params"] == older[0]["params"] and set(group) - {"in_workers"} == set(older[0])
    assert ("in_workers" in group) == (name == "dgc")
    saved["optimizer"]["param_groups"] = [
        {key: group[key] for key in [*older[0], *(["in_workers"] if name == "dgc" else [])]}
    ]
    torch.save(saved, tmp_path / "older" / checkpoint.FILE)
    assert digests(attempt(settings, tmp_path / "older")) == digests(undisturbed)
