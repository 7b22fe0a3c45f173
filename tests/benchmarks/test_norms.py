"""The benchmark of norms: its arithmetic, on vectors whose best norm is known."""

from __future__ import annotations

import itertools
import json
import statistics
from typing import Any

import pytest
import torch

from benchmarks import norms
from benchmarks.norms import KINDS, NORMS, Case, Recorded


def recorded(title: str = "ones and a few large") -> Recorded:
    """Three moments of four workers; a few coordinates are a hundred times the others."""
    generator = torch.Generator().manual_seed(1)
    large = torch.where(torch.rand(3000, generator=generator) < 0.002, 100.0, 1.0)
    return Recorded(
        title, [1000, 2000], [[large * torch.randn(3000, generator=generator) for _ in range(4)] for _ in norms.MOMENTS]
    )


def test_levels_that_were_fitted_err_less_and_later_ones_are_of_the_next_moment() -> None:
    found = norms.errors(Case("alq", "l2", 3, "tensor"), recorded())
    assert {kind: len(values) for kind, values in found.items()} == {"fresh": 3, "later": 2, "unfitted": 3}
    assert max(statistics.mean(found["fresh"]), statistics.mean(found["later"])) < 0.6 * statistics.mean(
        found["unfitted"]
    )


def test_means_and_ratios_are_of_all_cases() -> None:
    errors = {"l2": [1.0, 4.0], "linf": [0.5, 8.0], "quantile": [1.0, 16.0]}
    cases = {Case("alq", norm, 3, 256): dict.fromkeys(KINDS, errors[norm]) for norm in NORMS}
    found = norms.summary(cases, "alq")
    assert found["l2"]["fresh"] == {"mean": pytest.approx(2.0), "worst": 2.0, "best": 0.5}
    assert found["linf"]["later"] == {"mean": pytest.approx(2.0), "worst": 2.0, "best": 0.5}
    assert found["quantile"]["fresh"] == {"mean": pytest.approx(4.0), "worst": 4.0, "best": 0.0}


def test_the_last_line_is_one_json_object(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def there(title: str) -> Recorded:
        if "CIFAR" in title:
            raise FileNotFoundError(title)
        return recorded(title)

    monkeypatch.setattr(norms, "recorded", there)
    monkeypatch.setattr(norms, "BUCKETS", (256,))
    norms.main(["--methods", "amq", "--bits", "2", "3"])
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result["runs"] == ["CNN on digits"] and result["missing"] == ["LeNet on CIFAR-10", "ResNet-8 on CIFAR-10"]
    assert set(itertools.chain.from_iterable(result["methods"]["amq"].values())) == set(KINDS)
    assert sum(line.split()[:1] in (["2"], ["3"]) for line in lines) == 4
