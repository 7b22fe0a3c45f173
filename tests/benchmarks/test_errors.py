"""``benchmarks.errors``: its estimates are those of an independent way, on vectors whose answer is known."""

from __future__ import annotations

import json
import math
import statistics

import pytest
import torch

from benchmarks import eager
from benchmarks.errors import curves, figures, gradients, mean, mean_levels, methods, norms, per_bit
from benchmarks.errors.__main__ import main
from benchmarks.errors.contenders import Contender, built, relative_error
from benchmarks.errors.curves import Family, Point, best, families, family, frontier, measured, reached_at
from benchmarks.errors.gradients import Gradients
from nuq.compressors.quantized import trn
from nuq.kernels import reference
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.quantizers import TRN

NORMAL = torch.randn(1 << 14, generator=torch.Generator().manual_seed(1))
HALVES = [NORMAL[: 1 << 13], NORMAL[1 << 13 :]]
SOURCE = Gradients("Normal", HALVES[:1], HALVES[1:], [HALVES])
SHAPES = {"conv": (16, 8, 3, 3), "bias": (16,), "linear": (10, 64)}


def model_gradients(stand_in: bool = False) -> Gradients:
    generator = torch.Generator().manual_seed(1)
    n = sum(map(math.prod, SHAPES.values()))
    vectors = [torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp() for _ in range(4)]
    return Gradients("synthetic", vectors[:1], vectors[1:], shapes=SHAPES, stand_in=stand_in)


def workers(count: int, size: int, common: bool = True) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    shared = torch.randn(size, generator=generator) * common
    return [shared + torch.randn(size, generator=generator) for _ in range(count)]


# --- error per bit ---


def test_every_unbiased_method_takes_part_with_every_option() -> None:
    found = families()
    coded = {name for name, entry in METHODS.items() if hasattr(entry.settings(), "coding")}
    assert {one.method for one in found} == {name for name in coded if METHODS[name].unbiased}
    assert {one.settings["dither"] for one in found if one.method == "qsgd"} == {"none", "subtractive"}
    assert {one.settings["norm"] for one in found if one.method == "alq"} == {"l2", "linf", "quantile"}
    assert len(set(found)) == len(found)
    forms = {(one.settings["levels"], one.settings["coding"]) for one in found if one.method == "eden"}
    assert forms == {("lloyd_max", "packed"), ("lloyd_max", "rans"), ("uniform", "rans")}


def test_a_rate_is_reached_between_points_and_beyond_the_last_one() -> None:
    points = [Point(1.0, 1.0, 1), Point(3.0, 0.01, 3)]
    between, last = reached_at(points, 2), reached_at([*points, Point(3.05, 0.5, 4)], 3.1)
    assert between and between.error == pytest.approx(0.1) and between.bits == 2, "linear in the logarithm"
    assert last == points[1] and reached_at(points, 0.9) is reached_at([], 1) is None
    beaten = Point(1.5, 2.0, 2)
    assert frontier([points[0], beaten, points[1]]) == points


@pytest.mark.parametrize(("method", "kind"), [("ecdq", "others"), ("eden", "eden_lloyd_max"), ("eden", "all")])
def test_a_curve_that_ends_below_the_rate_can_win(method: str, kind: str) -> None:
    long, short = (family(f"{method} coding=rans bucket_size={size}") for size in (8192, 256))
    found = {long: [Point(3.0, 0.1, 3), Point(5.0, 0.001, 5)], short: [Point(2.0, 0.05, 2), Point(3.5, 0.002, 4)]}
    assert best(found, 4, per_bit.CONTESTS[kind]) == (short, Point(3.5, 0.002, 4))
    winner = best(found, 5, per_bit.CONTESTS[kind])
    assert winner and (winner[0], winner[1].error) == (long, pytest.approx(0.001))
    row = per_bit.contests(found)["4"][kind]
    assert (row["vnmse"], row["bits"]) == (0.002, 3.5)


def test_bits_are_those_of_the_bytes() -> None:
    made = curves.build(family("qsgdinf bucket_size=8192 coding=packed rotation=none"), 3, SOURCE)
    bits, error = measured(made, [[x] for x in SOURCE.measure])
    assert bits == 3 + 8 * (28 + 12 + 4) / 8192
    assert error == pytest.approx(0.19, rel=0.2)


def test_errors_of_a_mean_are_those_of_a_message_unless_workers_round_together() -> None:
    alone, together = (family(f"qsgdinf coding=packed rounding={how}") for how in ("stochastic", "correlated"))
    found = curves.curves_of([alone, together], SOURCE, [SOURCE.moments[0]] * 8)
    _, of_message = measured(curves.build(alone, 3, SOURCE), [[x] for x in SOURCE.measure])
    first, second = (reached_at(found[one], 3.1) for one in (alone, together))
    assert first and first.error == pytest.approx(of_message, rel=0.1)
    assert second and second.error < 0.6 * first.error
    # one scale for all: the largest bucket norm of two, after a rotation that does nothing to normal coordinates
    assert per_bit.shared_scale(SOURCE.moments[0], 3).error == pytest.approx(first.error, rel=0.2)
    assert per_bit.winners_of_mean({2: found})["3"]["2"]["name"] == "QSGDinf, correlated"


@pytest.mark.slow
def test_error_per_bit_in_small(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def plain(one: Family) -> bool:
        return one.label().partition(", ")[2].replace("l2", "") == ""

    large = [one for one in families() if one.settings["bucket_size"] != 256]
    chosen = [one for one in large if one.method in ("ecdq", "eden", "drive", "trn") or plain(one)]
    shown = [one for one in figures.SHOWN if " " not in one[0] or one[0].startswith(("ecdq", "eden"))]
    monkeypatch.setattr(figures, "SHOWN", shown)
    found = curves.curves_of(chosen, SOURCE, [[x] for x in SOURCE.measure], per_bit.RATES)
    ecdq = next(one for one in found if one.label() == "ECDQ, dithered, rANS")
    assert any(abs(point.bits - 2) < 0.01 for point in found[ecdq]), "tuned to a total of 2"
    other, point = best(found, 3, per_bit.CONTESTS["others"]) or pytest.fail("nobody reaches 3 bits")
    assert other.method == "ecdq" and point.error == pytest.approx(0.0235, rel=0.25)  # short: the coder's table counts
    winner, point = best(found, 3) or pytest.fail("nobody reaches 3 bits")
    assert winner.label().startswith("EDEN, uniform steps, rANS") and point.error == pytest.approx(0.0235, rel=0.1)
    row = per_bit.contests(found)["3"]
    assert row["all"]["name"] == winner.label() and not row["below_eden"]
    per_bit.write_points(tmp_path / "points.csv", {"normal": found})
    assert len((tmp_path / "points.csv").read_text().splitlines()) == 1 + sum(map(len, found.values()))
    figures.draw_curves({"Normal": found}, tmp_path)
    assert all((tmp_path / f"accuracy_per_bit.{form}").stat().st_size > 5000 for form in figures.FORMATS)


# --- the mean ---


@pytest.mark.slow
def test_what_is_unbiased_passes_and_what_clips_does_not() -> None:
    x = workers(4, 2000)
    for rounding in mean.ROUNDINGS:
        assert mean.measured(mean.quantizer("QSGDinf", rounding, x), x, 150).bias_sigma < 4
    assert mean.measured(trn(TRN(clip_sigma=1.0)), x, 150).bias_sigma > 10


def test_the_error_of_a_mean_is_a_quarter_of_a_messages_if_workers_agree() -> None:
    x = [torch.randn(2000, generator=torch.Generator().manual_seed(1))] * 4
    found = mean.measured(mean.quantizer("QSGDinf", "stochastic", x), x, 60)
    assert found.of_mean == pytest.approx(found.of_message / 4, rel=0.1)
    assert found.bits == pytest.approx(3.1, abs=0.2)


def test_figures_are_medians_over_moments() -> None:
    def errors(*of_mean: float) -> list[mean.Error]:
        return [mean.Error(value, 1.0, 3.0, value) for value in of_mean]

    found = {("QSGDinf", "stochastic"): errors(1, 1, 1), ("QSGDinf", "correlated"): errors(0.5, 0.2, 0.4)}
    found |= {("ALQ, l2", "stochastic"): errors(2, 2, 2), ("ALQ, l2", "correlated"): errors(1, 1, 2.5)}
    said = mean.figures(found, {"QSGDinf": (1.0, 0.9, 1.4), "ALQ, l2": (1.2, 1.1, 1.3)}, "those")
    assert said["corr_over_ind_qsgdinf"] == {"median": 0.4, "low": 0.2, "high": 0.5}
    assert (said["best"], said["best_over_alq_l2"]) == ("QSGDinf", {"median": 0.2, "low": 0.1, "high": 0.25})
    assert (said["bias_sigma"], said["bits"]) == (2.5, [3.0, 3.0])
    assert said["encode_cost"] == {"median": 1.1, "low": 1.0, "high": 1.2}


@pytest.mark.parametrize(("norm", "count"), [("linf", 4), pytest.param("l2", 3, marks=pytest.mark.slow)])
def test_the_exact_error_of_the_mean_is_that_of_the_kernels(norm: str, count: int) -> None:
    """Of workers that have something in common, and with a short last bucket."""
    rows = workers(count, 20_000)
    made, seen = mean_levels.fitted("optimal", "mean", norm, 7, rows)
    exact = mean_levels.error_of_mean(made, rows, nodes=32) / float(torch.stack(rows).mean(dim=0).square().sum())
    assert seen.workers == count and seen.agreement == pytest.approx(0.99, abs=0.03)
    assert mean.measured(made, rows, 40).of_mean == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_points_are_those_of_the_specification(count: int) -> None:
    numbers = {}
    for worker in range(count):
        key, among = Key(1, 2, worker, "a", workers=count).together()
        numbers[among[0]] = reference.uniforms(100, key, torch.device("cpu"), among).double()
    for drawn in torch.stack([numbers[place] for place in range(count)]).T:
        points = mean_levels.points_of(count, float(drawn[0]) * ((count + 1) // 2))  # the first place's is p z
        assert sorted(drawn.tolist()) == pytest.approx(sorted(points), abs=2e-4)


# --- norms ---


def test_levels_that_were_fitted_err_less_and_later_ones_are_of_the_next_moment() -> None:
    generator = torch.Generator().manual_seed(1)
    large = torch.where(torch.rand(3000, generator=generator) < 0.002, 100.0, 1.0)
    moments = [[large * torch.randn(3000, generator=generator) for _ in range(4)] for _ in range(3)]
    source = Gradients("a few large", moments=moments, shapes={"a": (1000,), "b": (2000,)})
    found = norms.errors_of("alq bits=3 norm=l2 bucket_size=8192", True, source)
    assert {kind: len(values) for kind, values in found.items()} == {"fresh": 3, "later": 2, "unfitted": 3}
    worst = max(statistics.mean(found["fresh"]), statistics.mean(found["later"]))
    assert worst < 0.6 * statistics.mean(found["unfitted"])


def test_means_and_ratios_are_of_all_cases() -> None:
    errors = {"l2": [1.0, 4.0], "linf": [0.5, 8.0], "quantile": [1.0, 16.0]}
    found = norms.summary([{norm: dict.fromkeys(norms.KINDS, errors[norm]) for norm in norms.NORMS}])
    assert found["l2"]["fresh"] == {"mean": pytest.approx(2.0), "worst": 2.0, "best": 0.5}
    assert found["quantile"]["fresh"] == {"mean": pytest.approx(4.0), "worst": 4.0, "best": 0.0}


# --- every method ---


@pytest.mark.slow
def test_every_method_ends_in_json_and_figures(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(gradients, "source", lambda model: model_gradients())
    monkeypatch.setattr(figures, "FORMATS", ("png",))
    chosen = ["supersgd", "qsgd bits=4", "topk ratio=0.1", "dgc", "alq"]
    main(["methods", "--quick", "--threads", "1", "--out", str(tmp_path), "--methods", *chosen])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = told["methods"]
    assert list(rows) == chosen and told["stand_in"] is False and told["claim"] is (not told["below"])
    for case, row in rows.items():
        ratio = row["ratio"] or 0.0  # None where a family has no baseline
        assert row["claim"] is (row["encode_gb_per_s"] >= 1 or ratio >= 10) is (case not in told["below"])
        assert not ratio or (row["ratio_low"] <= ratio <= row["ratio_high"] and row["pairs"] >= 3)
        assert row["error_low"] <= row["error"] <= row["error_high"]
    assert rows["qsgd bits=4"]["ratio"] and rows["alq"]["ratio"]
    assert rows["supersgd"]["error"] == 0 < rows["alq"]["error"] < rows["qsgd bits=4"]["error"]
    assert rows["supersgd"]["bits_per_coordinate"] == 32 + 8 * 28 / told["num_coordinates"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["methods_error.png", "methods_speed.png"]


def test_nothing_is_claimed_of_a_stand_in() -> None:
    row = methods.measure("qsgd", model_gradients(), pairs=1, budget_s=0)
    told = methods.summary({"qsgd": row}, model_gradients(stand_in=True))
    assert told["claim"] is told["methods"]["qsgd"]["claim"] is None


@pytest.mark.parametrize("text", ["topk ratio", "topk ratios=0.1", "tpk", "qsgd bits=9"])
def test_contenders_that_are_not_legal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["methods", "--methods", text])
    assert text.split()[-1].partition("=")[0] in capsys.readouterr().err


def test_scope_is_the_methods() -> None:
    of = Contender("dgc ratio=0.01", model_gradients())
    assert {name: tuple(part.shape) for name, part in of.parts(of.gradients.measure[0]).items()} == SHAPES
    assert Contender("qsgd", model_gradients()).parts(torch.zeros(5)).keys() == {"model"}


def test_levels_are_fitted_to_what_is_learned() -> None:
    x = model_gradients()
    errors = [relative_error(made.decode(made.encode(x.measure[0], Key(0, 0, 0))), x.measure[0])
              for made in (built("alq bits=3"), built("alq bits=3", x.learn))]  # fmt: skip
    assert errors[1] < errors[0]


def test_baselines_run_on_what_the_method_is_given(subtests: pytest.Subtests) -> None:
    """Where both are packed, the baseline's tensors take about as many bytes."""
    for name in METHODS:
        with subtests.test(method=name):
            of = Contender(name, model_gradients())
            baseline = eager.of(of.name, of.settings, of.compressor)
            if baseline is None:
                continue
            torch.manual_seed(2)  # of baselines that draw
            parts = of.parts(of.gradients.measure[0])
            ours = sum(message.numel() for message in of.encode(parts, 0))
            theirs = sum(_size(baseline(part)) for part in parts.values())
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


def test_a_method_that_a_device_refuses_leaves_the_others(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(gradients, "source", lambda model: model_gradients())
    given = methods.measure

    def refused(case: str, *rest: object) -> methods.Row:
        if case == "qsgd":
            raise RuntimeError("no kernel image")
        return given(case, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(methods, "measure", refused)
    words = ["--device", "cpu", "--pairs", "1", "--threads", "1", "--methods", "qsgd", "supersgd"]
    with pytest.raises(SystemExit, match="1"):
        main(["methods", *words])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["failed"] == {"qsgd": "RuntimeError: no kernel image"} and list(told["methods"]) == ["supersgd"]
    assert told["copy_gb_per_s"] > 0 and told["methods"]["supersgd"]["error"] == 0


@pytest.mark.slow
def test_recorded_gradients_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(gradients, "CACHE", tmp_path)
    monkeypatch.setenv("NUQ_DATA", str(tmp_path))
    small = gradients.Run(
        "GPT on text", {"data": "text", "model": "gpt", "model.width": 12, "batch_size": 2}, [1], [2], [0]
    )
    monkeypatch.setattr(gradients, "RUNS", {"gpt": small})
    found, again = (gradients.recorded("gpt") for _ in range(2))
    assert len(list(tmp_path.iterdir())) == 1 and found.shapes == again.shapes and len(found.moments[0]) == 16
    assert found.num_coordinates == sum(map(math.prod, found.shapes.values())) > 10_000
    pairs = zip(
        [*found.learn, *found.measure, *found.moments[0]],
        [*again.learn, *again.measure, *again.moments[0]],
        strict=True,
    )
    assert all(torch.equal(a, b) for a, b in pairs)
