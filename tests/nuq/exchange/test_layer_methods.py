"""Layers with a method of their own: the list, where parameters lie, and what the workers make of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.flat_layout import FlatLayout, Segment, arranged
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings import layers
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from tests.nuq.parts import flat, frame_bytes

NAMES = [
    "conv1.weight",
    "bn1.weight",
    "bn1.bias",
    "layer1.0.conv1.weight",
    "layer1.0.bn1.weight",
    "layer10.weight",
    "fc.weight",
    "fc.bias",
]
SHAPES = {"a.weight": (8, 40), "a.bias": (40,), "b.weight": (6, 5, 2, 2), "b.bias": (6,), "c.weight": (30, 9)}


# --- the list ---


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", NAMES),
        ("*bn*", ["bn1.weight", "bn1.bias", "layer1.0.bn1.weight"]),
        ("*conv1*", ["conv1.weight", "layer1.0.conv1.weight"]),
        ("*.bias", ["bn1.bias", "fc.bias"]),
        ("layer1", ["layer1.0.conv1.weight", "layer1.0.bn1.weight"]),  # the module, not its namesake layer10
        ("layer1.*", ["layer1.0.conv1.weight", "layer1.0.bn1.weight"]),
        ("layer?.0.conv[12]", ["layer1.0.conv1.weight"]),
        ("fc.weight", ["fc.weight"]),
    ],
)
def test_a_pattern_is_met_by_names_and_by_modules(pattern: str, names: list[str]) -> None:
    (layer,) = layers.parsed([f"{pattern} = supersgd"])
    assert [name for name in NAMES if layer.matches(name)] == names


def test_the_first_match_wins_and_settings_are_the_methods() -> None:
    lines = layers.parsed(
        [
            "*.bias=supersgd",
            " fc =  topk  ratio=0.5 values=fp16",
            "*1.weight = alq bits=4 symmetric=false update_at=[1, 20]",
        ]
    )
    assert layers.matched(lines, NAMES) == dict(zip(NAMES, [3, 3, 1, 3, 3, 0, 2, 1], strict=True))
    assert lines[1].settings == METHODS["topk"].settings(ratio=0.5, values="fp16")
    assert lines[2].settings == METHODS["alq"].settings(
        bits=4, symmetric=False, update_at=[1, 20], rounding="stochastic"
    )
    defaults = {"scope": "tensor", "update_at": [7]}
    one, two = layers.parsed(["fc = alq", "bn1 = dgc scope=model dense_1d=true"], defaults)
    assert (one.settings.scope, one.settings.update_at, two.settings.scope) == ("tensor", [7], "model")


# --- where parameters lie ---


def test_a_vector_of_several_gathers_them_and_tensors_keep_their_shape() -> None:
    encoders = {"a.weight": 0, "a.bias": 1, "b.weight": 2, "b.bias": 1, "c.weight": 0}
    made = arranged(SHAPES, encoders, ["model", "biases", None])
    assert list(made.segments) == [
        Segment("model", 0, 590),
        Segment("biases", 590, 46, encoder=1),
        Segment("b.weight", 636, 120, encoder=2, shape=(6, 5, 2, 2)),
    ]
    assert made.order == (0, 4, 1, 3, 2)
    tensors = [torch.full(shape, float(number)) for number, shape in enumerate(SHAPES.values())]
    vector = torch.cat([tensor.reshape(-1) for tensor in made.arranged(tensors)])
    restored = made.restored(vector, [tensor.numel() for tensor in tensors])
    assert torch.equal(restored, torch.cat([tensor.reshape(-1) for tensor in tensors]))
    exact = arranged(
        SHAPES, encoders, [None, None, "conv"], exact=lambda name: name.endswith("bias") or name == "b.weight"
    )
    assert exact.order is None
    assert exact.segments[1] == Segment("a.bias, b.weight, b.bias", 320, 166, exact=True)
    shards = FlatLayout((replace(made.segments[2], start=0),)).shards(2)
    pieces = [own for shard in shards for own in shard.segments]
    last = made.segments[2]
    assert pieces == [replace(last, start=64 * i, size=size, first=64 * i) for i, size in enumerate((64, 56))]


# --- workers ---


def sizes(shapes: dict[str, Any] = SHAPES) -> dict[str, torch.Size]:
    return {name: torch.Size(shape) for name, shape in shapes.items()}


def workers(name: str, lines: list[str], shapes: dict[str, Any] = SHAPES, **settings: Any) -> Workers:
    exchange = Exchange(collective=settings.pop("collective", "gather"))
    memory = Memory(settings.pop("feedback", Feedback()), momentum=0.9)
    of_method = METHODS[name].settings(**settings)
    return Workers(
        name, of_method, 3, sizes(shapes), 5, torch.device("cpu"), exchange=exchange, memory=memory, layers=lines
    )


def drawn(step: int, shapes: dict[str, Any] = SHAPES) -> dict[int, Tensor]:
    """Three workers' gradients; a parameter's do not depend on what others there are."""
    generators = {name: torch.Generator().manual_seed(100 * step + list(SHAPES).index(name)) for name in shapes}
    return {
        worker: flat(torch.randn(shape, generator=generators[name]) for name, shape in shapes.items())
        for worker in range(3)
    }


def trained(of: Workers, num_steps: int, shapes: dict[str, Any] = SHAPES, first: int = 0) -> list[dict[str, Tensor]]:
    """Every step's mean by parameter, with updates of levels as in training."""
    means = []
    for step in range(first, num_steps):
        own = drawn(step, shapes)
        of.observe(own, step, [one for one in of.levels.every if one.collects(step)])
        of.update_levels([one for one in of.levels.every if one.next_update(step) == step])
        mean = of.exchange(own, dict.fromkeys(range(3), 0.0), step).mean
        means.append(dict(zip(shapes, mean.split([math.prod(shape) for shape in shapes.values()]), strict=True)))
    return means


LINES = [
    "*.bias = supersgd",
    "b = alq bits=4 scope=tensor bucket_size=64 update_at=[2] num_samples=2",
    "c = topk ratio=0.1",
]


def test_every_layer_is_as_with_its_method_alone() -> None:
    """The same holds for its levels, which are of its own gradients, and its memory."""
    mixed = workers("amq", LINES, bucket_size=64, scope="tensor", update_at=[3], num_samples=2)
    means = trained(mixed, 5)
    alone = {
        "a.weight": workers(
            "amq", [], {"a.weight": SHAPES["a.weight"]}, bucket_size=64, scope="tensor", update_at=[3], num_samples=2
        ),
        "b.weight": workers(
            "alq",
            [],
            {"b.weight": SHAPES["b.weight"]},
            bits=4,
            scope="tensor",
            bucket_size=64,
            update_at=[2],
            num_samples=2,
            rounding="stochastic",
        ),
        "c.weight": workers("topk", [], {"c.weight": SHAPES["c.weight"]}, ratio=0.1),
        "a.bias": workers("supersgd", [], {"a.bias": SHAPES["a.bias"]}),
    }
    for name, one in alone.items():
        shapes = {name: SHAPES[name]}
        for step, mean in enumerate(trained(one, 5, shapes)):
            assert torch.equal(mean[name], means[step][name]), (name, step)
    assert [level_updater.encoder for level_updater in mixed.levels.every] == [0, 2]
    assert mixed.compressors.every[2].compressor.levels.num_levels == 16
    assert (means[0]["c.weight"] != 0).sum() <= 3 * 27


def test_bits_are_of_the_bytes() -> None:
    mixed = workers(
        "qsgd", ["*.bias = supersgd", "*.weight = topk ratio=0.1 indices=int32 scope=model"], feedback=Feedback("none")
    )
    result = mixed.exchange(drawn(0), dict.fromkeys(range(3), 0.0), 0)
    assert len(mixed.layout.segments) == 2
    assert result.bytes_per_worker == mixed.encode(drawn(0)[0], Key(5, 0, 0)).numel()
    assert mixed.compressors.bare.size(mixed.layout) == result.bytes_per_worker == frame_bytes(4 * 46, 6 + 8 * 71)


def test_parameters_of_one_line_are_one_vector_with_scope_model() -> None:
    lines = ["*.weight = topk ratio=0.05 scope=model"]
    mixed = workers("supersgd", lines, feedback=Feedback("none"))
    (means,) = trained(mixed, 1)
    own = drawn(0)
    total = torch.zeros(710)
    for gradient in own.values():
        parts = dict(zip(SHAPES, mixed.model_layout.views(gradient), strict=True))
        vector = flat(part for name, part in parts.items() if name.endswith("weight"))
        top = vector.abs().topk(36).indices
        total[top] += vector[top]
    total *= torch.tensor(1 / 3, dtype=torch.float32)
    assert torch.equal(torch.cat([means[name] for name in SHAPES if name.endswith("weight")]), total)
    biases = [mixed.model_layout.views(own[worker])[1] for worker in range(3)]
    exact = sum(biases[1:], biases[0]) * torch.tensor(1 / 3, dtype=torch.float32)
    assert torch.equal(means["a.bias"], exact)
    assert torch.equal(
        mixed.average([mixed.encode(own[worker], Key(5, 0, worker)) for worker in range(3)])[:320], means["a.weight"]
    )


@pytest.mark.parametrize("collective", ["gather", "two_stage", "server", "auto"])
def test_a_saved_state_goes_on(collective: str) -> None:
    lines = [*LINES, "a = dgc ratio=0.1"]
    settings: dict[str, Any] = {
        "bucket_size": 64,
        "collective": collective,
        "feedback": Feedback(both=collective != "gather"),
    }
    # every parameter has a method of its own, the biases those of the first line
    whole, first, second = (
        workers("natural", lines, **{k: v for k, v in settings.items() if k != "bucket_size"}) for _ in range(3)
    )
    means = trained(whole, 6)
    trained(first, 3)
    second.load_state_dict(first.state_dict())
    for mean, again in zip(means[3:], trained(second, 6, first=3), strict=True):
        assert all(torch.equal(mean[name], again[name]) for name in SHAPES)


def test_a_gradient_that_is_not_finite_is_named_where_parameters_are_rearranged() -> None:
    mixed = workers("qsgd", ["*.weight = alq norm=l2 scope=model"])
    bad = drawn(0)
    mixed.model_layout.views(bad[1])[3][2] = math.inf
    with pytest.raises(NonFiniteError, match=r"'b.bias' on worker 1"):
        mixed.exchange(bad, dict.fromkeys(range(3), 0.0), 0)
    huge = drawn(0)
    mixed.model_layout.views(huge[2])[4].fill_(3e38)
    with pytest.raises(NonFiniteError, match=r"'c.weight' on worker 2"):
        mixed.exchange(huge, dict.fromkeys(range(3), 0.0), 0)


# --- shapes ---


def test_biases_are_dense_and_pieces_of_matrices_are_not() -> None:
    for collective in ("gather", "two_stage"):
        (mean,) = trained(workers("dgc", [], collective=collective, ratio=0.05, feedback=Feedback("none")), 1)
        for name, shape in SHAPES.items():
            share = float((mean[name] != 0).float().mean())
            assert share == 1.0 if len(shape) == 1 else share < 0.4, (collective, name, share)


@pytest.mark.parametrize("method", ["dgc", "powersgd"])
def test_pieces_of_a_bias_are_dense_too_whatever_its_name(method: str) -> None:
    shapes = {"w": (30, 40), "b[0]": (1000,), "v[3]": (20, 60)}
    compressors = CompressorMap(method, METHODS[method].settings(), 4)
    compressors.assign(shapes)
    layout = compressors.arrange(shapes)
    for shards in (layout.shards(5), [layout]):
        total, x = torch.zeros(3400), torch.randn(3400, generator=torch.Generator().manual_seed(1))
        for shard in shards:
            payload = compressors.codec.encode(x, shard, Key(1, 0, 0))
            assert payload.numel() < 1.1 * 4 * sum(part.size for part in shard.segments if part.name == "b[0]") + 1500
            compressors.codec.add(payload, shard, total)
        assert torch.equal(total[1200:2200], x[1200:2200]) and not torch.equal(total[:1200], x[:1200])
