"""The optimizer's state between steps: really packed, decoded when asked for, and second moments that neither vanish
nor turn negative.
"""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import nuq
from nuq.kernels.spec import Key
from nuq.quantized_training.formats import Format, Packed
from nuq.quantized_training.packed_moments import PackedLogarithms, PackedMoments, absolute, needs_logarithms, relative
from tests.tiers import few

KEY = Key(1, 0, 0, "moment")
SPEC = "qsgdinf bits=8"


def log2_of(tensor: torch.Tensor, spec: str = SPEC) -> torch.Tensor:
    return PackedLogarithms.of(tensor, lambda logarithms: Format(spec).pack(logarithms, KEY)).unpack()


@pytest.mark.parametrize("spec", [SPEC, "smaq", "fp16", "fp8"])
@pytest.mark.parametrize("zeros", [0.0, 0.4, 1.0])
def test_second_moments_keep_their_size(spec, zeros):
    generator = torch.Generator().manual_seed(1)
    exponents = (
        4 * torch.randn(40, 30, generator=generator) - 25
    )  # from 1e-11 to 1e-4: in fixed steps all but the largest are zero
    moment = exponents.exp2().t() * (torch.rand(30, 40, generator=generator) >= zeros)
    found = log2_of(moment, spec)
    assert found.shape == moment.shape and (zeros or found.stride() == moment.stride())
    assert torch.equal(found == 0, moment == 0) and bool((found >= 0).all())
    there = moment > 0
    off = (found[there].log2() - moment[there].log2()).abs()
    limit = {SPEC: 0.7, "fp16": 0.02, "fp8": 4.0, "smaq": 0.7}[spec]
    inner = (exponents.t()[there] + 25).abs() < 9  # SmaQ clamps beyond 2.5 standard deviations
    assert not inner.any() or float(off[inner].max()) <= limit
    if not zeros:
        assert (
            float((Format("smaq").pack(moment, KEY).unpack() - moment)[moment < 1e-9].abs().max()) > 1e-8
        )  # without logarithms


def test_extremes_neither_vanish_nor_overflow():
    moment = torch.tensor([1e-44, 1e-38, 1.0, 3.4e38] * 50)
    found = log2_of(moment, "bf16")
    assert bool(torch.isfinite(found).all()) and bool((found > 0).all())
    assert log2_of(torch.zeros(7, 3)).equal(torch.zeros(7, 3))


def test_who_needs_logarithms():
    positive = torch.rand(10)
    assert (
        needs_logarithms("smaq", positive)
        and needs_logarithms("fp8", positive)
        and not needs_logarithms("bf16", positive)
    )
    assert not needs_logarithms("smaq", positive - 0.5)
    assert needs_logarithms("smaq", positive, "exp_avg_sq/fc.weight") and needs_logarithms(
        "smaq", positive, "acc_delta/fc.weight"
    )
    assert not any(
        needs_logarithms("smaq", positive, f"{key}/fc.weight") for key in ("exp_avg", "momentum_buffer", "grad_avg")
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spec", ["smaq", SPEC])
def test_logarithms_of_every_type(dtype, spec):
    """The extremes of the type itself: squares in float64 reach far below float32."""
    info = torch.finfo(dtype)
    moment = torch.tensor([info.tiny, 0.0, 1.0, info.max] * 50, dtype=dtype)
    found = log2_of(moment, spec)
    assert found.dtype == dtype and bool(torch.isfinite(found).all()) and torch.equal(found == 0, moment == 0)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("size", [1.0, 1e-30])
def test_a_model_in_float64(name, size):
    torch.manual_seed(0)
    model = nn.Linear(20, 40, dtype=torch.float64)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
    nuq.CompressedTraining(model, optimizer, moments="smaq", min_size=500)
    for _ in range(3):
        optimizer.zero_grad()
        (size * model(torch.ones(4, 20, dtype=torch.float64)).square().mean()).backward()
        optimizer.step()
    squares = optimizer.state_dict()["state"][0]["square_avg" if name == "RMSprop" else "exp_avg_sq"]
    assert squares.dtype == torch.float64 and bool((squares > 0).all()) and float(squares.max()) <= size * size


def trained(make, steps: int = 3, **formats) -> tuple[nn.Module, torch.optim.Optimizer, nuq.CompressedTraining]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3))
    optimizer = make(model.parameters())
    compressed = nuq.CompressedTraining(model, optimizer, min_size=500, **formats)
    step(model, optimizer, steps)
    return model, optimizer, compressed


def step(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    x = torch.randn(16, 20, generator=torch.Generator().manual_seed(2))
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def first(model: nn.Module) -> nn.Parameter:
    return next(model.parameters())


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_the_state_is_packed_between_steps_and_there_when_asked_for(make):
    model, optimizer, compressed = trained(make, moments=SPEC)
    large = first(model)
    plain, full, _ = trained(make)
    keys = {key for key, value in full.state[first(plain)].items() if value.shape == large.shape}
    assert keys and not keys & set(optimizer.state[large])  # the float32 tensors are gone
    assert compressed.counts.last["moments"][0] == 4 * large.numel() * len(keys)
    saved, again = optimizer.state_dict(), optimizer.state_dict()
    assert all(torch.equal(saved["state"][0][key], again["state"][0][key]) for key in keys)
    assert not keys & set(optimizer.state[large])
    assert all(bool((value >= 0).all()) for key, value in saved["state"][0].items() if "sq" in key or key == "sum")
    compressed.remove()
    assert all(torch.equal(optimizer.state[large][key], saved["state"][0][key]) for key in keys)
    step(model, optimizer)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_a_fine_format_changes_little(make):
    plain, packed = trained(make, 6)[0], trained(make, 6, moments="fp16")[0]
    assert torch.allclose(first(plain), first(packed), atol=3e-3)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_resuming_gives_the_same_bits(make):
    formats = {
        "moments": SPEC,
        "weights": "bf16",
        "master": True,
        "gradients": SPEC,
        "activations": SPEC,
        "activation_gradients": "fp8",
    }
    model, optimizer, compressed = trained(make, 4, **formats)
    states = [part.state_dict() for part in (model, optimizer, compressed)]
    states = [torch.load(_saved(state), weights_only=True) for state in states]
    step(model, optimizer, 3)
    again = trained(make, 0, **formats)
    for part, state in zip(again, states, strict=True):
        part.load_state_dict(state)
    step(again[0], again[1], 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again[0].parameters(), strict=True))
    ours, theirs = compressed.state_dict(), again[2].state_dict()
    assert ours["step"] == theirs["step"] == 7
    assert all(torch.equal(value, theirs["masters"][name]) for name, value in ours["masters"].items())


def _saved(state: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    "save": lambda optimizer: torch.load(_saved(optimizer), weights_only=False),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=list(COPIES))
def test_a_copy_of_the_optimizer_has_the_moments(make):
    model, optimizer, compressed = trained(OPTIMIZERS["adam"], moments=SPEC)
    twin = make(optimizer)
    assert "exp_avg" not in optimizer.state[first(model)]  # still packed here
    expected, found = optimizer.state_dict(), twin.state_dict()
    assert found["param_groups"] == expected["param_groups"]
    for number, state in expected["state"].items():
        assert state.keys() == found["state"][number].keys()
        assert all(torch.equal(value, found["state"][number][key]) for key, value in state.items())
    twin.step()
    compressed.remove()
    assert "__getstate__" not in vars(optimizer)
    assert copy.deepcopy(optimizer).state_dict()["state"][0].keys() == expected["state"][0].keys()


def test_a_copy_of_model_and_optimizer_trains_on():
    model, optimizer, _ = trained(OPTIMIZERS["adam"], moments="smaq")
    twin_model, twin = copy.deepcopy((model, optimizer))
    assert first(twin_model) is twin.param_groups[0]["params"][0] and "exp_avg" in twin.state[first(twin_model)]
    before = first(twin_model).detach().clone()
    step(twin_model, twin)
    assert not torch.equal(first(twin_model), before)


def test_a_parameter_without_a_name_is_packed():
    """One that the optimizer got later than the names."""
    later = nn.Parameter(torch.ones(600))
    optimizer = torch.optim.Adam([later])
    later.grad = torch.ones(600)
    optimizer.step()
    names = list[str]()

    def pack(tensor: torch.Tensor, name: str) -> Packed:
        names.append(name)
        return Format("bf16").pack(tensor, KEY)

    PackedMoments(optimizer, {}, pack, 500, in_units=True).pack()
    assert names == ["exp_avg/a parameter", "exp_avg_sq/a parameter"]


def test_a_step_that_raises_leaves_the_state_whole():
    model, optimizer, _ = trained(OPTIMIZERS["adam"], moments=SPEC)

    def refuse(*_: object) -> None:
        raise RuntimeError("no step")

    before = optimizer.state_dict()["state"][0]["exp_avg"]
    handle = optimizer.register_step_pre_hook(refuse)  # called when the state is decoded already
    with pytest.raises(RuntimeError, match="no step"):
        optimizer.step()
    handle.remove()
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], before)
    step(model, optimizer)


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam])
def test_a_step_that_calls_its_base_class_counts_once(base):
    """torch puts its hooks around every class's step,
    and so around both once the base class has been used by itself.
    """

    class Own(base):
        def step(self, closure=None):
            return super().step(closure)

    more: dict[str, Any] = {"momentum": 0.9} if base is torch.optim.SGD else {}
    ended = []
    for kind in (base, Own):
        model, optimizer, compressed = trained(
            lambda p, kind=kind: kind(p, lr=0.01, **more), weights=SPEC, gradients=SPEC, moments=SPEC
        )
        assert compressed.step == 3
        step(model, optimizer)
        ended.append([*model.state_dict().values(), *optimizer.state_dict()["state"][0].values()])
    for plain, own in zip(*ended, strict=True):
        assert torch.equal(plain, own)


def test_a_step_that_raises_is_no_step_around_the_next():
    """It is none whether or not the model's own forward is called in between."""
    model, optimizer, compressed = trained(OPTIMIZERS["adam"], moments=SPEC)
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(TypeError):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step()
    assert compressed.step == 4
    assert "exp_avg" not in optimizer.state[first(model)]


LR = 3e-3
BY_ROOTS = {
    "adam": lambda p: torch.optim.Adam(p, lr=LR),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=LR, weight_decay=0.0, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=LR),
    "radam": lambda p: torch.optim.RAdam(p, lr=LR),
    "adamax": lambda p: torch.optim.Adamax(p, lr=LR),
}


@few(2, "make", BY_ROOTS.values(), ids=list(BY_ROOTS))
@pytest.mark.parametrize("spec", ["smaq", "smaq outlier_limit=16", "fp8", "s2fp8", "nnw_bdi", "block8", "bf16", SPEC])
def test_no_weight_steps_further_than_its_own_gradients_say(make, spec):
    """Gradients of nine decades in one tensor, and ones that end: where first moments are rounded as they are, steps of
    1e4 rates.
    """
    model = nn.Linear(40, 30, bias=False)
    optimizer = make(model.parameters())
    nuq.CompressedTraining(model, optimizer, moments=spec, min_size=500)
    sizes = torch.logspace(-6, 3, 40)
    generator = torch.Generator().manual_seed(1)
    for step in range(25):
        gradient = torch.randn(30, 40, generator=generator) * sizes
        gradient[:3] *= step < 2
        gradient[3:6] = 0.0
        before = model.weight.detach().clone()
        model.weight.grad = gradient
        optimizer.step()
        moved = (model.weight.detach() - before).abs()
        assert step < 6 or float(moved.max()) < 8 * LR  # RAdam's first steps are as long as the gradients
        assert float(moved[3:6].max()) < 0.1 * LR


@few(2, "make", BY_ROOTS.values(), ids=list(BY_ROOTS))
def test_dead_units_do_not_keep_adam_from_learning(make):
    losses = []
    for formats in ({}, {"moments": "smaq", "min_size": 100}):
        torch.manual_seed(0)
        first_layer = nn.Linear(20, 40)
        model = nn.Sequential(first_layer, nn.ReLU(), nn.Linear(40, 3))
        nn.init.constant_(first_layer.bias[:4], -50.0)
        x = torch.randn(128, 20, generator=torch.Generator().manual_seed(2))
        optimizer = make(model.parameters())
        nuq.CompressedTraining(model, optimizer, **formats)
        loss = torch.tensor(0.0)
        for _ in range(150):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] < 0.7 and losses[1] == pytest.approx(losses[0], rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_units_are_taken_off_and_put_back(dtype):
    moments = {"exp_avg": torch.tensor([2e-3, -4e-3, 0.0, 5.0]), "exp_avg_sq": torch.tensor([1e-6, 4e-6, 1.0, 0.0])}
    moments = {key: value.to(dtype) for key, value in moments.items()}
    found = relative(moments)
    assert torch.allclose(found["exp_avg"], torch.tensor([2.0, -2.0, 0.0, 0.0], dtype=dtype), rtol=0.06)
    back = absolute(found)
    assert back["exp_avg"].dtype == dtype and torch.allclose(back["exp_avg"][:3], moments["exp_avg"][:3], rtol=0.01)
    assert relative({"exp_avg": moments["exp_avg"], "exp_inf": moments["exp_avg"].abs()})["exp_avg"].tolist() == [
        1.0,
        -1.0,
        0.0,
        1.0,
    ]
    assert relative({"exp_avg": moments["exp_avg"]})["exp_avg"] is moments["exp_avg"]


def test_amsgrads_maximum_is_no_smaller_than_the_mean_square():
    state = trained(OPTIMIZERS["adam"], 6, moments="smaq")[1].state_dict()["state"][0]
    assert bool((state["max_exp_avg_sq"] >= state["exp_avg_sq"]).all())
