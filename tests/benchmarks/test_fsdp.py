"""The benchmark of FSDP2's steps over slow links, in small."""

import json
from pathlib import Path

import pytest

from benchmarks import fsdp, fsdp_parity


@pytest.mark.slow
def test_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fsdp.main(["--quick", "--parity", "--out", str(tmp_path / "rows.json")])
    found = json.loads((tmp_path / "rows.json").read_text())
    assert list(found["cases"]) == list(fsdp.MODELS)
    for rates in found["cases"].values():
        assert list(rates) == ["loopback"] and list(rates["loopback"]) == list(fsdp.VARIANTS)
        rows = rates["loopback"].values()
        assert all(row["step_s"]["median"] > 0 and row["speedup_vs_bf16"]["median"] > 0 for row in rows)
    assert found["speedup_1g_mlp"] == found["speedup_1g_gpt"] == "not measured"
    assert len(found["parity"]["losses"]["4 bits"]) == len(found["parity"]["seeds"])
    assert capsys.readouterr().out.startswith("model  rate      variant  ms a step  of bf16's speed")


def test_the_bars_are_of_the_variant_chosen_beforehand() -> None:
    rows = [
        {"model": "mlp", "rate": rate, "variant": variant, "speedup_vs_bf16": {"median": speedup}}
        for rate, variant, speedup in (("1G", "8 bits", 1.5), ("1G", "4 bits", 1.2), ("100M", "4 bits", 3.0))
    ]
    assert fsdp.bars(rows) == {"speedup_1g_mlp": 1.2, "speedup_1g_gpt": "not measured"}


def test_parity_is_a_difference_within_the_seeds_interval() -> None:
    plain = [2.30, 2.32, 2.34]  # +- 4.303 * 0.02 / sqrt(3)
    near, far = fsdp_parity.judged(plain, [2.34, 2.36, 2.38]), fsdp_parity.judged(plain, [2.36, 2.38, 2.40])
    assert near["plain"] == {"median": 2.32, "low": 2.3, "high": 2.34}
    assert (near["difference"], near["seeds_half_width"], near["parity"]) == (0.04, 0.0497, True)
    assert (far["difference"], far["difference_half_width"], far["parity"]) == (0.06, 0.0, False)
