"""The study of CASQ: its own arithmetic, and one small run of everything."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from benchmarks import lss, lss_speed
from benchmarks.lss import Contender, Recorded
from nuq.kernels.spec import Key


class Fixed:
    """A method that decodes to what it was told."""

    class Message:
        num_bytes = 3

        def __init__(self, size: int) -> None:
            self.size = size

    def __init__(self, factor: torch.Tensor) -> None:
        self.factor = factor

    def encode(self, x: torch.Tensor, key: Key) -> Message:
        del key
        self.x = x
        return self.Message(x.numel())

    def decode(self, message: Message) -> torch.Tensor:
        del message
        return self.x * self.factor


@pytest.mark.parametrize("scope", ["tensor", "model"])
def test_errors_are_signed_and_of_large_and_small_values_apart(scope: str) -> None:
    x = torch.cat([torch.full((57,), 1.0), torch.full((38,), -2.0), torch.full((5,), -100.0)])
    method = Fixed(torch.cat([torch.full((57,), 1.5), torch.full((38,), 1.0), torch.full((5,), 0.9)]))
    (row,) = lss.measure(Contender("cells", "a", 1, method), Recorded(7, {"w": x.view(10, 10)}), {"w": "conv"}, scope)
    assert row.large == pytest.approx(-0.1) and row.small == pytest.approx(0.5 * 57 / (57 + 76))
    assert row.error == pytest.approx((57 * 0.25 + 5 * 100.0) / (57 + 38 * 4 + 5 * 1e4), rel=1e-5)
    assert (row.bits, row.step, row.kind, row.number) == (0.24, 7, "conv", 1)


def test_kinds_of_parameters() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Sequential(torch.nn.Linear(2, 2))
    )
    expected = {
        "0.weight": "conv",
        "0.bias": "bias",
        "1.weight": "norm",
        "1.bias": "norm",
        "2.0.weight": "linear",
        "2.0.bias": "bias",
    }
    assert lss.kinds_of(model) == expected


def test_baselines_come_near_in_bytes() -> None:
    gradient = Recorded(1, {"w": lss_speed.heavy(20_000)})
    found = [contender for contender in lss.contenders(gradient, "tensor") if contender.study == "baselines"]
    bits = {
        contender.title: sum(lss.through(contender.method, gradient, "tensor")[1].values()) / 20_000
        for contender in found
    }
    assert [title.split(" (")[0] for title in bits] == [
        "CASQ", "CASQ, outliers above 99 %", "CASQ, no outliers", "SketchML", "SketchML, no sketch", "TopK", "QSGD",
    ]  # fmt: skip
    nearest = next(value for title, value in bits.items() if title.startswith("TopK"))
    assert nearest == pytest.approx(bits["CASQ"], rel=0.1)


@pytest.mark.slow
def test_a_small_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(lss, "CLUSTERS", (2, 4))
    monkeypatch.setattr(lss, "CELLS", (0.01, 0.1))
    monkeypatch.setattr(lss, "BASELINES", {"TopK": ("topk", [{"ratio": 0.1}])})
    lss.main(["--steps", "4", "--every", "2", "--coordinates", "5000", "--out", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("TopK (ratio 0.1)") for line in lines)
    figures = json.loads(lines[-1])
    assert figures["gradients"] == 2 and set(figures["clusters"]["4 clusters"]) == {"conv", "linear", "bias"}
    assert figures["clusters"]["4 clusters"]["conv"]["error"] < figures["clusters"]["2 clusters"]["conv"]["error"]
    assert set(figures["speed"]) == {"casq", "sketchml"}
    with (tmp_path / "lss.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * (2 + 2 + 4) and {row["step"] for row in rows} == {"2", "4"}
    assert [path.stat().st_size > 5000 for path in (tmp_path / "lss.png", tmp_path / "lss.pdf")] == [True, True]


def test_steps_that_record_nothing_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lss.main(["--steps", "5", "--every", "10"])
    assert "no gradient is recorded" in capsys.readouterr().err
