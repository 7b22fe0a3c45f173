"""Uses of a model and an optimizer while their training is compressed: copies, changes from outside, several models."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nuq
from nuq.kernels.spec import Key
from nuq.quantized_training.formats import Format
from tests.nuq.quantized_training.test_training import ALL, SIZE, data, setup, train


def distinct(model: Any) -> int:
    return model.out.weight.unique().numel()


class InPlace(nn.Module):
    """Changes what its exponential has saved, which is too small to be packed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).exp().add_(1)


def test_changes_in_place_that_the_backward_pass_needs_to_see_are_errors() -> None:
    model = InPlace()
    nuq.CompressedTraining(model, activations="smaq")
    with pytest.raises(RuntimeError, match=r"\(2, 4\)"):
        model(torch.randn(2, 4)).sum().backward()
    model, _, _ = setup(activations="smaq")
    loss = model(data()[0]).sum()
    with torch.no_grad():
        model.out.weight.mul_(2)
    with pytest.raises(RuntimeError):
        loss.backward()


def test_parameters_that_are_added_later_are_compressed_too() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64))
    optimizer = torch.optim.Adam(model[0].parameters())
    compressed = nuq.CompressedTraining(model, optimizer, weights="smaq", moments="smaq", min_size=SIZE)
    for _ in range(2):
        model(torch.randn(8, 64)).square().sum().backward()
        optimizer.step()
        if len(optimizer.param_groups) == 1:
            before = compressed.counts.last["weights"][0]
            optimizer.add_param_group({"params": list(model[2].parameters())})
    assert compressed.counts.last["weights"][0] == 2 * before and model[2].weight.unique().numel() < 2048


def test_a_closure_is_refused_before_anything_is_changed() -> None:
    model, optimizer, _ = setup(**ALL)
    with pytest.raises(RuntimeError):
        optimizer.step(lambda: 1.0)  # type: ignore[arg-type, return-value]
    train(model, optimizer)


def test_an_optimizer_is_attached_once() -> None:
    model, optimizer, compressed = setup(gradients="smaq")
    with pytest.raises(ValueError):
        nuq.CompressedTraining(nn.Linear(2, 2), optimizer, gradients="smaq")
    compressed.remove()
    nuq.CompressedTraining(model, optimizer, gradients="smaq")


def test_a_parameter_without_a_gradient_stays_rounded_beside_its_float32_copy() -> None:
    model, optimizer, _ = setup(weights="smaq", master=True)
    train(model, optimizer)
    before = distinct(model)
    x, y = data()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    model.out.weight.grad = None
    optimizer.step()
    assert distinct(model) == before


def test_weights_that_are_set_between_steps_win_over_the_float32_copy() -> None:
    model, optimizer, compressed = setup(weights="smaq", master=True, lr=0.0)
    train(model, optimizer)
    model.load_state_dict({name: torch.full_like(value, 0.5) for name, value in model.state_dict().items()})
    train(model, optimizer)
    assert torch.allclose(model.out.weight, torch.tensor(0.5))
    kept = compressed.state_dict()
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    compressed.load_state_dict(kept)
    train(model, optimizer)
    assert torch.allclose(compressed.state_dict()["masters"]["out.weight"], torch.tensor(0.5))


def test_a_pickled_model_goes_without() -> None:
    model, optimizer, _ = setup(**ALL)
    train(model, optimizer)
    x = data()[0]
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.eval()(x), model.eval()(x))
    again.train()(x).sum().backward()
    copy.deepcopy(model).train()(x).sum().backward()


def test_ratios_are_against_float32_whatever_the_models_type() -> None:
    torch.manual_seed(0)
    model = nn.Linear(128, 128).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compressed = nuq.CompressedTraining(model, optimizer, weights="fp8")
    model(torch.randn(4, 128).bfloat16()).float().square().sum().backward()
    optimizer.step()
    assert compressed.ratios()["compression_ratio_optimizer_weight"] == pytest.approx(4, rel=0.02)


def test_layers_that_hand_on_what_they_are_given_round_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    packs: list[int] = []
    pack = Format.pack
    monkeypatch.setattr(
        Format, "pack", lambda self, tensor, key: packs.append(tensor.numel()) or pack(self, tensor, key)
    )
    model = nn.Sequential(nn.Linear(32, 64), nn.Flatten(), nn.Dropout(0.5).eval(), nn.Linear(64, 2))
    nuq.CompressedTraining(model, activation_gradients="smaq", min_size=SIZE)
    model(torch.randn(16, 32)).sum().backward()
    assert packs == [16 * 64]


@pytest.mark.parametrize(
    ("spec", "dtype"), [("bf16", torch.float16), ("natural", torch.float16), ("nnw_bdi", torch.bfloat16)]
)
def test_what_is_finite_stays_finite(spec: str, dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    tensor = torch.tensor([most, -most, most / 3, 1.0] * 64, dtype=dtype)
    found = Format(spec).pack(tensor, Key(seed=0, step=0, worker=0, parameter="x")).unpack()
    assert found.dtype == dtype and bool(torch.isfinite(found).all())


def test_a_copy_of_the_model_goes_without_and_changes_no_bit_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages of weights, and teachers, are copies."""
    found = []
    for copies in (False, True):
        model, optimizer, _ = setup(**ALL)
        twin = copy.deepcopy(model)
        for _ in range(2):
            if copies:
                twin.train()(data()[0]).sum().backward()
            train(model, optimizer)
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    monkeypatch.setattr(Format, "pack", lambda *_: pytest.fail("packed"))
    twin(data()[0]).sum().backward()


def test_a_penalty_on_gradients_reaches_all_parameters() -> None:
    """Rounded gradients are differentiated in turn."""
    norms = []
    cases: list[dict[str, Any]] = [{}, {"activation_gradients": "bf16"}]
    for formats in cases:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
        nuq.CompressedTraining(model, min_size=16, **formats)
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        norms.append(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(norms[0], norms[1], rtol=0.05)


def fused_steps(
    scale: float | None, steps: int, **formats: Any
) -> tuple[Any, torch.optim.Optimizer, nuq.CompressedTraining]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    compressed = nuq.CompressedTraining(model, optimizer, min_size=SIZE, **formats)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, growth_interval=1000, enabled=scale is not None)
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        scaler.scale(10 * model(x).square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return model, optimizer, compressed


def test_scaled_gradients_of_a_fused_optimizer_are_rounded_without_their_scale() -> None:
    """2^40 times as large they lie beyond the plain cast to fp8; a power of two changes no bit."""
    formats = {"gradients": "fp8 scale=none", "moments": "smaq", "weights": "smaq"}
    plain, scaled = fused_steps(None, 3, **formats)[0], fused_steps(2.0**40, 3, **formats)[0]
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), scaled.parameters(), strict=True))


def test_a_fused_optimizers_step_that_overflows_is_skipped() -> None:
    formats = {"gradients": "smaq", "moments": "smaq", "weights": "smaq"}
    model, optimizer, compressed = fused_steps(2.0**127, 1, **formats)
    assert compressed.step == 0 and all(not p.grad.isfinite().all() for p in model[0].parameters())
    model, optimizer, compressed = fused_steps(None, 2, **formats)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), compressed.state_dict()))
    optimizer.found_inf, optimizer.grad_scale = torch.tensor(1.0), torch.tensor(2.0)  # type: ignore[attr-defined]
    model[0].weight.grad.fill_(float("inf"))
    optimizer.step()
    del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined]
    assert "exp_avg" not in optimizer.state[model[0].weight]
    after = (model.state_dict(), optimizer.state_dict(), compressed.state_dict())
    assert before[2] == after[2]
    assert all(torch.equal(value, after[0][name]) for name, value in before[0].items())
    moments = [
        (value, after[1]["state"][number][key])
        for number, state in before[1]["state"].items()
        for key, value in state.items()
    ]
    assert len(moments) == 12 and all(torch.equal(one, other) for one, other in moments)


class Coder(nn.Module):
    """Trained by another method than ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def encode(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh()


def test_passes_beside_the_models_own_forward_are_warned_of_once() -> None:
    model = Coder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nuq.CompressedTraining(model, optimizer, activations="smaq", min_size=16)

    def step() -> None:
        model.encode(torch.randn(8, 16)).sum().backward()
        optimizer.step()

    with pytest.warns(
        UserWarning,
        match=r"activations='smaq': none was packed in the first step; .* call the module that you attach to",
    ):
        step()
    step()


@pytest.mark.parametrize(
    ("kind", "make", "min_size"),
    [
        ("weights", torch.optim.SGD, 10_000),
        ("gradients", torch.optim.SGD, 10_000),
        ("moments", torch.optim.Adam, 10_000),
        ("moments", torch.optim.Adafactor, 16),  # a matrix's second moments are kept as a row and a column
    ],
)
def test_formats_that_pack_nothing_are_warned_of_once_in_the_first_step_with_gradients(
    kind: str, make: Any, min_size: int
) -> None:
    model = nn.Linear(32, 16, bias=False)
    optimizer = make(model.parameters(), lr=0.1)
    formats: dict[str, Any] = {kind: "smaq"}
    nuq.CompressedTraining(model, optimizer, **formats, min_size=min_size)
    optimizer.step()
    model(torch.randn(8, 32)).sum().backward()
    with pytest.warns(
        UserWarning,
        match=rf"{kind}='smaq': none was packed in the first step; .* min_size={min_size} coordinates or more$",
    ):
        optimizer.step()
    optimizer.step()


def test_without_an_optimizer_ratios_are_of_all_passes() -> None:
    model = nn.Linear(128, 128)
    compressed = nuq.CompressedTraining(model, activations="bf16")
    assert compressed.ratios() == {}
    for _ in range(2):
        x = torch.randn(64, 128)
        model(x).sum().backward()
    ratio = 4 * x.numel() / Format("bf16").pack(x, Key(0, 0, 0)).nbytes
    assert compressed.ratios() == {"compression_ratio": ratio, "compression_ratio_forward_autograd": ratio}
