"""``layers`` as a setting: what is refused without torch, names and identities, Hydra's grammar, and axes of sweeps."""

from __future__ import annotations

import shlex

import pytest

from grid.engine.sweep import Sweep
from grid.engine.sweeps.overrides import pinned
from grid.engine.sweeps.points import axis, point, product
from settings import command_line, resolving, run_identity, sections

LINES = ["*conv1* = topk ratio=0.01", "*norm* = supersgd"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layers": ["conv1 = topkk"]}, "did you mean 'topk'"),
        ({"layers": ["conv1 = topk ratio=3"]}, r"layers\[0\].ratio=3.0: must be at most 1.0"),
        ({"layers": ["conv1 = topk ratio=0.1 ratio=0.2"]}, r"layers\[0\]='.*': ratio is set twice"),
        ({"layers": ["conv1"]}, "must be of the form"),
        ({"layers": [3]}, "must be of the form"),
        ({"layers": "conv1 = topk"}, "layers='conv1 = topk': must be of type"),
        ({"layers": LINES, "method": "sgd"}, "has no effect with method=sgd"),
        ({"layers": ["conv1 = dgc"], "optim": "adam"}, "momentum correction moves SGD's momentum into the workers"),
    ],
)
def test_bad_layers_are_refused_with_the_other_settings(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        resolving.resolve(settings)


def test_names_stay_readable_and_older_identities_what_they_were() -> None:
    config = resolving.resolve({"layers": [*LINES, "conv2 = topk ratio=0.5"]})
    assert run_identity.run_name(config).startswith("alq-3b+topk+supersgd-cnn-digits-s1-")
    plain = resolving.resolve({})
    assert (
        run_identity.identity(config)
        != run_identity.identity(plain)
        != run_identity.identity(resolving.resolve({"layers": LINES[::-1]}))
    )
    assert "layers" not in run_identity.result_settings(plain)


def test_means_of_one_layer_are_enough_for_second_bits_to_count() -> None:
    settings = {"method": "supersgd", "exchange.collective": "two_stage", "exchange.second_bits": 6}
    with pytest.raises(ValueError, match="has no effect with method=supersgd"):
        resolving.resolve(settings)
    assert resolving.resolve({**settings, "layers": ["fc = qsgd"]})["exchange"]["second_bits"] == 6


def test_momentum_acts_in_the_workers_where_a_layers_method_wants_it() -> None:
    names = ["conv1.weight", "conv1.bias", "fc.weight"]
    config = resolving.resolve({"layers": ["*.bias = supersgd", "conv1 = dgc"]})
    assert sections.momentum_in_workers_of(config, names) == [True, False, False]
    assert (
        sections.momentum_in_workers_of(resolving.resolve({"layers": ["conv1 = dgc"], "feedback.kind": "none"}), names)
        == [False] * 3
    )
    assert (
        sections.momentum_in_workers_of(
            resolving.resolve({"layers": ["conv1 = topk"], "feedback.kind": "momentum"}), names
        )
        == [True] * 3
    )
    assert sections.momentum_in_workers_of(resolving.resolve({"method": "dgc"}), names) == [True] * 3


def test_a_sweep_varies_them_and_its_overrides_read_back() -> None:
    """They are read back as lists, and in Hydra's grammar, where a comma within brackets is the list's."""
    points = product(point(method="alq"), axis("layers", [[], LINES]))
    text = 'layers=[],["*conv1* = topk ratio=0.01","*norm* = supersgd"]'
    assert [item.settings["layers"] for item in axis(text)] == [[], LINES]
    one, other = Sweep(points=points).experiments()
    assert one.config["layers"] == [] and other.config["layers"] == LINES
    words = pinned(other, "runs/x")
    again = resolving.resolve(command_line.parse_overrides(shlex.split(shlex.join(words))))
    assert again == {**other.config, "run_dir": "runs/x"}
