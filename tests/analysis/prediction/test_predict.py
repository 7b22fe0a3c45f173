"""The cost model: what must rise or fall, break-even, and what is said to wrong questions."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.prediction import profile, validate
from analysis.prediction.command import rows_of
from analysis.prediction.ranges import bandwidths_of, counts_of
from nuq.prediction import steps as predict
from nuq.prediction.message_size import DENSE, Format, predicted
from nuq.prediction.rates import Bucket, Model
from nuq.prediction.steps import Network, Variant, ddp_buckets, gains
from nuq.prediction.units import shown_bandwidth, shown_gains
from nuq.registry import METHODS
from tests.analysis.prediction.known_cases import BF16, MILLION, MS, PLAIN, UNIFORM

ROWS = Path(__file__).with_name("wire_rows.jsonl")


# --- whole steps --------------------------------------------------------------------------------------------------

MODEL = ddp_buckets(11_200_000)
REAL = profile.read(profile.DEFAULT)


@pytest.mark.parametrize("variant", [BF16, UNIFORM], ids=["bf16", "uniform"])
def test_steps_get_shorter_with_bandwidth_and_never_than_the_computation(variant: Variant) -> None:
    for workers in (2, 8, 64, 1024):
        steps = [
            predict.predict(variant, MODEL, 0.1, Network(workers, 10.0**power), REAL).step_s for power in range(7, 13)
        ]
        assert all(slow >= fast >= 0.1 for slow, fast in pairwise(steps))


def test_steps_get_longer_with_workers_and_bits() -> None:
    for one, two in pairwise((2, 4, 16, 128, 1024)):
        assert all(
            predict.predict(UNIFORM, MODEL, 0.1, Network(one, 1e9), REAL, name).step_s
            < predict.predict(UNIFORM, MODEL, 0.1, Network(two, 1e9), REAL, name).step_s
            for name in ("gather", "two_stage", "server")
        )
    steps = [
        predict.predict(Variant(*2 * [Format("levels", bits)]), MODEL, 0.1, Network(8, 1e8), REAL).step_s
        for bits in range(1, 9)
    ]
    assert steps == sorted(steps)


def test_auto_is_the_quickest() -> None:
    network = Network(16, 1e9, 4)
    steps = {
        name: predict.predict(UNIFORM, MODEL, 0.1, network, REAL, name).step_s for name in predict.SPARSE_COLLECTIVES
    }
    auto = predict.predict(UNIFORM, MODEL, 0.1, network, REAL)
    assert auto.collective == min(steps, key=lambda name: steps[name])
    assert auto.step_s == min(steps.values())
    assert auto.exposed_s == pytest.approx(auto.step_s - 0.1)
    with pytest.raises(ValueError, match="'hierarchical': must be one of auto, gather, two_stage, server here"):
        predict.predict(UNIFORM, MODEL, 0.1, Network(16, 1e9), REAL, "hierarchical")


def test_break_even_is_where_both_take_as_long() -> None:
    # a bytes at B bit/s and fixed s against b bytes: quicker below 8 (b - a) / fixed
    assert gains(lambda speed: 8e6 / speed + 0.05, lambda speed: 24e6 / speed) == pytest.approx(
        (0, 16e6 / 0.05), rel=1e-4
    )
    assert gains(lambda speed: 8e6 / speed, lambda speed: 24e6 / speed) == (0, math.inf)
    assert gains(lambda speed: 24e6 / speed, lambda speed: 8e6 / speed) == (0, 0)


@pytest.mark.parametrize(
    ("dearer_from", "link", "low", "high", "shown"),
    [
        (math.inf, 1e9, 3.2e8, math.inf, "above 320M"),
        (2e9, 1e9, 3.2e8, 2e9, "320M to 2G"),
        (2e9, 1e6, 3.2e8, 2e9, "320M to 2G"),  # far from the link
        (3e8, 1e9, 0, 0, "never"),
    ],
)
def test_what_gains_on_quicker_links_alone(
    dearer_from: float, link: float, low: float, high: float, shown: str
) -> None:
    # 3 MB against 1 MB and 50 ms: quicker above 16e6 / 0.05
    found = gains(lambda at: 24e6 / at + (at > dearer_from), lambda at: 8e6 / at + 0.05, link)
    assert found == pytest.approx((low, high), rel=1e-4)
    assert shown_gains(*found) == shown


def test_of_two_ranges_the_one_of_the_link_counts() -> None:
    def step_s(at: float) -> float:
        return 2.0 if 1e8 <= at < 1e10 else 0.5

    for link, shown in ((1e7, "below 100M"), (1e9 / 2, "below 100M"), (2e9, "above 10G"), (2e10, "above 10G")):
        assert shown_gains(*gains(step_s, lambda _: 1.0, link)) == shown
    assert shown_gains(*gains(lambda at: 1 - (at == 3e9), lambda _: 1.0, 3e9)) == "3G to 3G", "as the row says"


@pytest.mark.parametrize("workers", [2, 32, 1024])
def test_compression_pays_below_break_even_and_not_above(workers: int) -> None:
    def steps(bandwidth: float) -> tuple[float, float]:
        network = Network(workers, bandwidth)
        ours, theirs = (
            predict.predict(variant, MODEL, 0.1, network, REAL).step_s for variant in (Variant(slow, slow), BF16)
        )
        return ours, theirs

    slow = Format("rotated", 3)
    low, even = gains(lambda speed: steps(speed)[0], lambda speed: steps(speed)[1])
    assert low == 0
    assert 1e7 < even < 1e11
    below, above = steps(0.9 * even), steps(1.1 * even)
    assert below[0] < below[1]
    assert above[0] > above[1]


def test_full_buckets_are_ddp_s() -> None:
    model = ddp_buckets(20_000_000, tensors=100)
    assert [bucket.coordinates for bucket in model.buckets] == [262_144, 6_553_600, 6_553_600, 6_553_600, 77_056]
    assert model.parameters == 20_000_000
    assert [bucket.tensors for bucket in model.buckets] == [1, 33, 33, 33, 1]
    assert model.buckets[-1].ready == 1
    assert ddp_buckets(1000).buckets == (Bucket(1000, 1.0, 1),)


# --- what is asked ------------------------------------------------------------------------------------------------


def test_ranges_and_lists() -> None:
    assert counts_of("8..1024") == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert counts_of("3..20") == [3, 4, 8, 16, 20]
    assert counts_of("16,8") == [8, 16]
    assert [shown_bandwidth(speed) for speed in bandwidths_of("100M..400G")] == [
        "100M",
        "400M",
        "1G",
        "4G",
        "10G",
        "40G",
        "100G",
        "400G",
    ]
    assert [shown_bandwidth(speed) for speed in bandwidths_of("1G..20G")] == ["1G", "2G", "5G", "10G", "20G"]
    assert bandwidths_of("2.5G,1M") == [1e6, 2.5e9]


def test_methods_of_equal_cost_share_a_row() -> None:
    found = profile.read(profile.DEFAULT)
    every = predicted(found.formats)
    assert every == list(METHODS)
    rows = {row.label: row.methods for row in rows_of(every, None, 4, None, found)}
    assert {"fp32", "bf16", "qsgd +1", "trn", "eden", "drive", "ecdq", "topk", "dgc", "powersgd"} < set(rows)
    assert {"alq", "amq", "nuqsgd"} < set(rows["alq +7"])
    named = [name for methods in rows.values() for name in methods]
    assert sorted(named) == sorted(set(every) - {"sgd"})


def test_a_profile_is_written_as_it_is_read(tmp_path: Path) -> None:
    profile.write(REAL, tmp_path / "profile.json")
    assert profile.read(tmp_path / "profile.json") == REAL


# --- what is answered ---------------------------------------------------------------------------------------------


def test_the_answer_and_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figure = tmp_path / "numbers.csv", tmp_path / "deep" / "figure.png"
    asked = [
        "--workers",
        "8,1024",
        "--bandwidth",
        "100M..1G",
        "--methods",
        "alq",
        "amq",
        "trn",
        "--csv",
        str(out),
        "--figure",
        str(figure),
    ]
    assert main(["predict", *asked]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[1].startswith(("Checked against", "This profile has not been validated"))
    assert said.index("1,024 workers") > said.index(lines[1])
    assert "alq +1: alq, amq, which cost the same" in lines
    assert figure.stat().st_size > 10_000
    assert figure.with_suffix(".pdf").exists()
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 2 * 4 * 5  # fp32, bf16, three methods; 100M 200M 500M 1G
    for row in rows:
        if row["method"] == "bf16":
            assert float(row["speedup_vs_bf16"]) == 1
        if row["break_even_bit_s"]:
            assert (float(row["speedup_vs_bf16"]) > 1) == (
                float(row["bandwidth_bit_s"]) < float(row["break_even_bit_s"])
            )


def test_the_json_says_where_a_method_always_or_never_pays(capsys: pytest.CaptureFixture[str]) -> None:
    """A norm for each coordinate makes QSGD's messages longer than bf16's."""

    def break_evens(*asked: str) -> dict[str, object]:
        assert main(["predict", "--json", "--workers", "8", "--bandwidth", "1G", "--methods", *asked]) == 0
        return {row["method"]: row["break_even_bit_s"] for row in json.loads(capsys.readouterr().out)}

    pays = break_evens("qsgd", "ecdq")
    assert (pays["fp32"], pays["bf16"], pays["qsgd"]) == (None, None, "always")
    assert isinstance(pays["ecdq"], float)
    assert break_evens("qsgd", "--bits", "8", "--bucket_size", "1")["qsgd"] == "never"
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    assert 'the JSON says "never" or "always" and the CSV 0 or inf' in " ".join(capsys.readouterr().out.split())


def test_what_pays_on_quick_links_alone_has_a_lower_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two workers, messages go in one round, bf16's ring takes two; a norm for each coordinate makes them long."""
    slow = tmp_path / "profile.json"
    profile.write(replace(REAL, latency_s=1.0, busy_latency_s=1.0), slow)
    asked = ["predict", "--workers", "2", "--bandwidth", "1G", "--profile", str(slow), "--methods", "qsgd"]
    asked += ["--bits", "8", "--bucket_size", "1"]
    assert main([*asked, "--json"]) == 0
    answer = capsys.readouterr()
    (row,) = (row for row in json.loads(answer.out) if row["method"] == "qsgd")
    assert row["break_even_bit_s"] == "always"
    assert 1e5 < row["pays_from_bit_s"] < 1e9
    assert f"above {shown_bandwidth(row['pays_from_bit_s'])}" in answer.err
    assert row["speedup_vs_bf16"] > 1


def test_validation_is_kept_and_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "profile.json"
    profile.write(replace(REAL, validation={}), own)
    assert main(["predict", "--validate", str(ROWS), "--profile", str(own), "--keep"]) == 0
    said = capsys.readouterr().out
    kept = profile.read(own).validation
    checked = validate.validated(validate.read_rows(ROWS), REAL)
    sizes = sorted(
        abs(found.step_s / row["step_s"] - 1) for row, found in zip(checked.rows, checked.predictions, strict=True)
    )
    assert kept["worst_error"] == pytest.approx(sizes[-1], abs=1e-4)
    assert kept["rows"] == len(sizes)
    assert f"worst {kept['worst_error']:.1%}" in said
    assert "not modelled: powersgd" in said
    assert main(["predict", "--profile", str(own), "--workers", "1024", "--bandwidth", "1G"]) == 0
    stated = capsys.readouterr().out.splitlines()[1]
    assert f"{kept['median_error']:.0%} in the median, {kept['worst_error']:.0%} at worst" in stated
    assert "Extrapolated: more than" in stated


def test_validation_starts_from_the_row(tmp_path: Path) -> None:
    row = {
        "ranks": 4,
        "model": "one",
        "raw_mbit": 1000.0,
        "variant": "qsgd",
        "step_s": 1.0,
        "compute_s": 0.2,
        "bucket": 1,
    }
    made_up = replace(PLAIN, cores=2, models={"one": Model((MILLION,))})
    (found,) = validate.validated([{**row, "collective": "gather"}], made_up).predictions
    size = 40 + 4 * 123 + 375_000
    assert found.step_s == pytest.approx(0.2 + 2 * 12 * MS + 1 * MS + 3 * size * 8e-9)  # 4 ranks on 2 cores take turns
    (dense,) = validate.validated([{**row, "variant": "bf16"}], made_up).predictions
    (gated,) = validate.validated([{**row, "variant": "qsgd_gate"}], made_up).predictions
    (auto,) = validate.validated([row], made_up).predictions
    assert gated.step_s == min(dense.step_s, auto.step_s)


def test_every_dense_format_has_its_own_collectives() -> None:
    for kind in DENSE:
        assert Variant(*2 * [Format(kind, 1)]).collectives == predict.DENSE_COLLECTIVES
