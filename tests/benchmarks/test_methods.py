"""``benchmarks.methods`` on a small gradient: what its rows and its JSON say, and the eager baselines against the
methods they stand for.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import eager, method_rows, methods, methods_figure, model_gradient
from benchmarks.model_gradient import Gradients

SHAPES = {"conv": (16, 8, 3, 3), "bias": (16,), "linear": (10, 64)}


def gradients(stand_in: bool = False) -> Gradients:
    generator = torch.Generator().manual_seed(1)
    n = sum(math.prod(shape) for shape in SHAPES.values())
    vectors = [torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp() for _ in range(4)]
    return Gradients("synthetic", SHAPES, vectors[:1], vectors[1:], stand_in)


@pytest.mark.slow
def test_the_json_and_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_gradient, "recorded", lambda model: gradients())
    monkeypatch.setattr(methods_figure, "FORMATS", ("png",))
    cases = ["sign", "qsgd bits=4", "topk ratio=0.1", "powersgd", "alq"]
    methods.main(["--quick", "--threads", "1", "--out", str(tmp_path), "--methods", *cases])
    lines = capsys.readouterr().out.splitlines()
    told = json.loads(lines[-1])
    assert list(told["methods"]) == cases and told["stand_in"] is False and told["threads"] == 1
    for case, row in told["methods"].items():
        assert row["claim"] is (row["encode_gb_per_s"] >= 1 or row["ratio"] >= 10) and row["claim"] is not (
            case in told["below"]
        )
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"] and row["pairs"] >= 3
        assert min(row["encode_gb_per_s"], row["decode_gb_per_s"], row["eager_gb_per_s"]) > 0
        assert row["error_low"] <= row["error"] <= row["error_high"]
        line = next(line for line in lines if line.startswith(f"{row['title']} "))
        assert f"{row['error_low']:.4g} .. {row['error_high']:.4g}" in line, "what the median hides"
    assert any("the median of 3 gradients" in line for line in lines)
    assert told["methods"]["alq"]["error_low"] < told["methods"]["alq"]["error_high"]
    assert told["claim"] is (not told["below"])
    assert (
        told["methods"]["supersgd"]["error"]
        == 0
        < told["methods"]["alq"]["error"]
        < told["methods"]["qsgd bits=4"]["error"]
    )
    assert told["methods"]["supersgd"]["bits_per_coordinate"] == 32 + 8 * 28 / told["num_coordinates"]
    assert told["methods"]["qsgd bits=4"]["title"] == "QSGD bits=4" and any(
        line.startswith("QSGD bits=4 ") for line in lines
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["methods_error.png", "methods_speed.png"]


def test_nothing_is_claimed_of_a_stand_in() -> None:
    row = methods.measure("qsgd", gradients(), pairs=1, budget_s=0)
    told = methods.summary({"qsgd": row}, gradients(stand_in=True))
    assert told["claim"] is told["methods"]["qsgd"]["claim"] is None


@pytest.mark.parametrize("case", ["topk ratio", "topk ratios=0.1", "tpk", "qsgd bits=9"])
def test_cases_that_are_not_legal(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        methods.main(["--methods", case])
    assert case.split()[-1].partition("=")[0] in capsys.readouterr().err


@pytest.mark.slow
def test_gradients_of_every_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = {"cifar_resnet18": {"model": "lenet"}, "lenet": {}, "gpt": {"model.width": 12}}
    known = {name: (words, {**settings, **small[name]}) for name, (words, settings) in model_gradient.MODELS.items()}
    monkeypatch.setattr(model_gradient, "MODELS", known)
    monkeypatch.setattr(model_gradient, "CACHE", tmp_path)
    monkeypatch.setattr(model_gradient, "BATCH_SIZE", 2)
    monkeypatch.setenv("NUQ_DATA", str(tmp_path))
    for name in known:
        found = model_gradient._recorded(name, stand_in=True)
        assert len(found.measure) == 3 and found.num_coordinates == sum(map(math.prod, found.shapes.values())) > 10_000
        again = model_gradient._recorded(name, stand_in=True)  # from what was kept
        assert (
            all(torch.equal(a, b) for a, b in zip(found.measure, again.measure, strict=True))
            and again.shapes == found.shapes
        )


def test_scope_is_the_methods() -> None:
    of = methods.Contender("dgc ratio=0.01", gradients())
    assert {name: tuple(part.shape) for name, part in of.parts(of.gradients.measure[0]).items()} == SHAPES
    assert methods.Contender("qsgd", gradients()).parts(torch.zeros(5)).keys() == {"model"}


def test_baselines_run(subtests: pytest.Subtests) -> None:
    """A baseline runs on what the method itself is given; where both are packed, the baseline's tensors take about as
    many bytes.
    """
    for name in eager.EAGER:
        with subtests.test(method=name):
            of = methods.Contender(name, gradients())
            assert of.eager is not None
            torch.manual_seed(2)  # of baselines that draw
            parts = of.parts(of.gradients.measure[0])
            ours = sum(message.numel() for message in of.encode(parts, 0))
            theirs = sum(_size(of.eager(part)) for part in parts.values())
            assert 0.4 * ours < theirs < 2.5 * ours + 2000


def _size(sent: object) -> int:
    if isinstance(sent, torch.Tensor):
        return sent.numel() * sent.element_size()
    if isinstance(sent, bytes):
        return len(sent)
    return sum(map(_size, sent)) if isinstance(sent, list | tuple) else 4


@pytest.mark.parametrize("num_levels", [2, 3, 8, 16, 256])
def test_baselines_pack_as_tightly(num_levels: int) -> None:
    codes = torch.randint(0, num_levels, (1000,), generator=torch.Generator().manual_seed(0))
    size = eager.packed(codes, num_levels).numel()
    assert size == (200 if num_levels == 3 else 125 * (num_levels - 1).bit_length())


def test_a_method_that_a_device_refuses_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_gradient, "recorded", lambda model: gradients())
    given = methods.measure

    def refused(case: str, *rest: object) -> method_rows.Row:
        if case == "qsgd":
            raise RuntimeError("no kernel image")
        return given(case, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(methods, "measure", refused)
    with pytest.raises(SystemExit, match="1"):
        methods.main(["--device", "cpu", "--pairs", "1", "--threads", "1", "--methods", "qsgd", "supersgd"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["failed"] == {"qsgd": "RuntimeError: no kernel image"} and list(told["methods"]) == ["supersgd"]
    assert told["name"] == "CPU" and told["copy_gb_per_s"] > 0 and told["methods"]["supersgd"]["error"] == 0
