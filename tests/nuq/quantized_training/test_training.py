"""Quantized training as a library: each kind goes through its format, once, with keyed roundings, and can be taken off
again.
"""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nuq
from nuq.errors import NonFiniteError
from nuq.quantized_training.counts import BINS, EDGES, TensorHistograms, ratios
from nuq.quantized_training.formats import Format

ALL: dict[str, Any] = {
    "weights": "smaq",
    "activations": "smaq",
    "activation_gradients": "smaq",
    "gradients": "smaq",
    "moments": "smaq",
}
SIZE = 100


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3), nn.Tanh()
        )
        self.out = nn.Linear(16 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x).flatten(1))


def data() -> tuple[Tensor, Tensor]:
    """Four classes of images that a small net tells apart in a few steps."""
    generator = torch.Generator().manual_seed(4)
    y = torch.arange(32) % 4
    means = torch.randn(4, 1, 8, 8, generator=generator)
    return means[y] + 0.3 * torch.randn(32, 1, 8, 8, generator=generator), y


def setup(**settings: Any) -> tuple[Net, torch.optim.Optimizer, nuq.CompressedTraining]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.pop("lr", 0.05), momentum=0.9)
    return model, optimizer, nuq.CompressedTraining(model, optimizer, min_size=SIZE, **settings)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> float:
    x, y = data()
    loss = torch.tensor(0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def weights(model: nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def test_everything_in_smaq_learns_and_counts():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    model, optimizer, compressed = setup(**ALL)
    torch.set_rng_state(state)
    assert train(model, optimizer) > 1
    assert train(model, optimizer, 25) < 0.2
    assert torch.equal(torch.get_rng_state(), state)  # roundings draw nothing from it
    found = compressed.ratios()
    tags = ("optimizer_weight", "optimizer_grad", "optimizer_momentum", "forward_autograd", "backward_autograd")
    assert set(found) == {"compression_ratio", *(f"compression_ratio_{tag}" for tag in tags)}
    assert all(3 < value < 12 for value in found.values())


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    runs = []
    for seed in (1, 1, 2):
        model, optimizer, _ = setup(seed=seed, **ALL)
        train(model, optimizer, 3)
        runs.append(weights(model))
    assert runs[0] == runs[1] != runs[2]


def test_an_evaluation_in_between_changes_no_bit():
    runs = []
    for evaluates in (False, True):
        model, optimizer, _ = setup(inference=True, **ALL)
        for _ in range(3):
            train(model, optimizer)
            if evaluates:
                with torch.no_grad():
                    model.eval()(data()[0])
                model.train()
        runs.append(weights(model))
    assert runs[0] == runs[1]


def test_another_worker_rounds_passes_otherwise_and_the_rest_alike():
    def one(worker: int, **settings) -> list[bytes]:
        model, optimizer, compressed = setup(**settings)
        compressed.worker = worker
        train(model, optimizer, 2)
        return weights(model)

    for kind, spec in ALL.items():
        assert (one(0, **{kind: spec}) == one(1, **{kind: spec})) == (
            kind not in ("activations", "activation_gradients")
        ), kind


@pytest.mark.parametrize("kind", ALL)
def test_fp32_none_and_nothing_change_nothing(kind):
    plain, optimizer, _ = setup()
    train(plain, optimizer, 2)
    for spec in ("fp32", "", None):
        model, optimizer, compressed = setup(**{kind: spec})
        train(model, optimizer, 2)
        assert weights(model) == weights(plain) and compressed.ratios() == {}
    model, optimizer, compressed = setup(**{kind: "smaq"})
    train(model, optimizer, 2)
    assert weights(model) != weights(plain) and len(compressed.ratios()) == 2


def test_weights_become_what_their_packed_form_decodes_to():
    model, optimizer, compressed = setup(weights="bf16", gradients="qsgdinf bits=2")
    train(model, optimizer)
    for name, parameter in model.named_parameters():
        same = torch.equal(parameter.detach(), parameter.detach().bfloat16().float())
        assert same == (parameter.numel() >= SIZE) or name.endswith("bias"), name
        assert parameter.grad is not None
        if parameter.grad.numel() >= SIZE:  # four levels, linf: 0 is none of them
            assert len(parameter.grad.unique()) <= 4 * -(-parameter.numel() // 8192)
    assert compressed.counts.last["weights"][0] == 4 * sum(p.numel() for p in model.parameters() if p.numel() >= SIZE)


def test_a_float32_copy_takes_updates_that_are_too_small_for_the_format():
    """A step of 1e-6 of a bf16 number near .1, rounded to nearest, is lost without the copy and not with it."""
    moved = {}
    for master in (False, True):
        model, optimizer, compressed = setup(lr=1e-6, weights="bf16", master=master)
        train(model, optimizer)
        first = model.out.weight.detach().clone()
        train(model, optimizer, 40)
        moved[master] = int((model.out.weight != first).sum())
        copies = compressed.state_dict()["masters"]
        assert set(copies) == ({"body.3.weight", "out.weight"} if master else set())
        compressed.remove()
        if master:
            assert torch.equal(model.out.weight, copies["out.weight"])
    assert moved[True] > moved[False]


def test_gradients_between_layers_go_through_the_format_each_once():
    model, _, compressed = setup(activation_gradients="smaq")
    x, y = data()
    F.cross_entropy(model(x), y).backward()
    compressed.counts.finish()
    # conv, norm, relu in place, conv and tanh; the last layer's output has 32 x 4 coordinates
    sizes = [32 * 8 * 36] * 3 + [32 * 16 * 16] * 2 + [32 * 4]
    assert compressed.counts.last["activation_gradients"][0] == 4 * sum(sizes)
    with torch.no_grad():
        assert torch.equal(model(x), model(x))


def test_in_inference_outputs_are_rounded_only_where_asked():
    x, _ = data()
    for inference in (False, True):
        torch.manual_seed(0)
        model = Net().eval()
        plain = model(x)
        compressed = nuq.CompressedTraining(model, activations="qsgdinf bits=4", inference=inference, min_size=SIZE)
        with torch.no_grad():
            found = model(x)
        assert torch.equal(found, plain) != inference
        assert torch.equal(model(x), plain)  # with a gradient to come nothing is cut off
        compressed.remove()


def test_removed_it_leaves_nothing_behind():
    model, optimizer, compressed = setup(**ALL)
    train(model, optimizer)
    compressed.remove()
    assert all(not hooks for m in model.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks))
    plain = copy.deepcopy(model)
    its = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    its.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, 2)
    train(plain, its, 2)
    assert weights(model) == weights(plain)
    nuq.CompressedTraining(model, optimizer, **ALL)  # and on again


def test_what_is_not_finite_passes_through_passes_and_stops_the_step():
    model, optimizer, compressed = setup(activations="smaq", activation_gradients="smaq")
    x, y = data()
    x[0] = float("inf")
    F.cross_entropy(model(x), y).backward()
    gradient = model.out.weight.grad
    assert gradient is not None and not bool(
        torch.isfinite(gradient).all()
    )  # as without us: loss scaling may skip the step
    compressed.remove()
    model, optimizer, _ = setup(gradients="smaq")
    model(x).sum().backward()
    with pytest.raises(NonFiniteError, match=r"step 0.*'body.3.weight'"):
        optimizer.step()


def test_distribution_are_of_the_normalised_coordinates():
    histograms = TensorHistograms()
    x = 3 + 0.5 * torch.randn(20000, generator=torch.Generator().manual_seed(1))
    histograms.add("weights", x)
    histograms.add("weights", torch.full((50,), 2.0))  # no spread: left out
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    assert histograms.masses["weights"].sum() == 20000 and len(histograms.masses["weights"]) == BINS
    assert np.average(centres, weights=histograms.masses["weights"]) == pytest.approx(0, abs=0.01)
    assert np.average(centres**2, weights=histograms.masses["weights"]) == pytest.approx(1, abs=0.01)
    assert histograms.fits("weights") == pytest.approx((3, 0.5), rel=0.01)
    model, optimizer, compressed = setup(**ALL)
    compressed.histograms = TensorHistograms()
    train(model, optimizer)
    assert set(compressed.histograms.masses) == set(ALL)


def test_ratios_are_of_bytes():
    counts = {"weights": (400, 100), "activations": (4000, 500), "gradients": (0, 0)}
    found = ratios(counts)
    assert found == {
        "compression_ratio": pytest.approx(4400 / 600),
        "compression_ratio_optimizer_weight": 4,
        "compression_ratio_forward_autograd": 8,
    }
    model, _, compressed = setup(activations="smaq")
    x, _ = data()
    model.eval()(x)
    compressed.counts.finish()
    packed = Format("smaq").pack(x, nuq.Key(0, 0, 0, ""))
    assert compressed.counts.last["activations"][0] > x.nbytes > packed.nbytes
