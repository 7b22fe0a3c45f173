"""The accuracy benchmark's own arithmetic, and one small run of everything but the recording."""

import json
import math

import pytest
import torch

from benchmarks import accuracy_curves, accuracy_figure, accuracy_of_mean, accuracy_per_bit
from benchmarks.accuracy_curves import Family, Point, best, error_at, families, frontier, reached_at
from benchmarks.gradient_samples import Source
from nuq.registry import METHODS

NORMAL = torch.randn(1 << 14, generator=torch.Generator().manual_seed(1))
HALVES = [NORMAL[: 1 << 13], NORMAL[1 << 13 :]]
SOURCE = Source("Normal", HALVES[:1], HALVES[1:], HALVES)


def test_every_unbiased_method_takes_part_with_every_option():
    found = families()
    coded = {name for name, entry in METHODS.items() if hasattr(entry.settings(), "coding")}
    assert {family.method for family in found} == {name for name in coded if METHODS[name].unbiased}
    assert {family.settings["dither"] for family in found if family.method == "qsgd"} == {"none", "subtractive"}
    assert {family.settings["norm"] for family in found if family.method == "alq"} == {"l2", "linf", "quantile"}
    assert len(set(found)) == len(found)
    forms = {(family.settings["levels"], family.settings["coding"]) for family in found if family.method == "eden"}
    assert forms == {("lloyd_max", "packed"), ("lloyd_max", "rans"), ("uniform", "rans")}, (
        "EDEN's own form for an entropy coder, and its usual one"
    )


def test_interpolation_is_linear_in_the_logarithm_and_never_below_the_points():
    points = [Point(1.0, 1.0, 1), Point(3.0, 0.01, 3)]
    assert error_at(points, 2) == pytest.approx(0.1)
    assert error_at(points, 1) == pytest.approx(1.0) and error_at(points, 3) == pytest.approx(0.01)
    assert error_at(points, 0.9) is None and error_at([], 1) is None


def test_fewer_bits_than_the_rate_count_as_reaching_it():
    points = [Point(1.0, 1.0, 1), Point(3.0, 0.01, 3)]
    assert reached_at(points, 3.1) == points[1] and error_at(points[:1], 1) == 1.0
    assert reached_at([*points, Point(3.05, 0.5, 4)], 3.1) == points[1]  # the last one may be beaten


@pytest.mark.parametrize(("method", "kind"), [("ecdq", "others"), ("eden", "eden_lloyd_max"), ("eden", "all")])
def test_a_curve_that_ends_below_the_rate_can_win(method, kind):
    options = {"bucket_size": 8192, "coding": "rans", "rotation": "none", "dither": "none"}
    long, short = (Family(method, tuple({**options, "bucket_size": size}.items())) for size in (8192, 256))
    curves = {long: [Point(3.0, 0.1, 3), Point(5.0, 0.001, 5)], short: [Point(2.0, 0.05, 2), Point(3.5, 0.002, 4)]}
    assert best(curves, 4, kind) == (short, Point(3.5, 0.002, 4))
    assert best(curves, 4, method=method) == (short, Point(3.5, 0.002, 4))
    last = best(curves, 5, kind)
    assert last and (last[0], last[1].error) == (long, pytest.approx(0.001))
    found = accuracy_per_bit.contests(curves)["4"][kind]
    assert (found["vnmse"], found["bits"]) == (0.002, 3.5)


def test_the_table_names_bits_below_the_rate(capsys):
    family = Family("ecdq", (("bucket_size", 8192), ("coding", "rans"), ("rotation", "none"), ("dither", "none")))
    accuracy_per_bit.print_table(SOURCE, {family: [Point(2.5, 0.05, 2), Point(3.5, 0.002, 4)]})
    winner = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("winner"))
    assert winner.split() == ["winner", "-", "0.01", "ECDQ", "rANS", "0.002", "ECDQ", "rANS", "@3.500"]


def test_points_that_others_beat_do_not_count():
    good, bad = [Point(1.0, 1.0, 1), Point(2.0, 0.1, 3)], Point(1.5, 2.0, 2)
    assert frontier([good[0], bad, good[1]]) == good
    assert error_at([good[0], bad, good[1]], 1.5) == pytest.approx(math.sqrt(0.1))


def test_bits_are_those_of_the_bytes():
    family = Family("qsgdinf", (("bucket_size", 8192), ("coding", "packed"), ("rotation", "none")))
    bits, error = accuracy_curves.measure(accuracy_curves.build(family, 3, SOURCE), SOURCE)
    assert bits == 3 + 8 * (28 + 12 + 4) / 8192
    assert error == pytest.approx(0.19, rel=0.2)


@pytest.mark.slow
def test_a_small_run(monkeypatch, tmp_path, capsys):
    chosen = [
        family
        for family in families()
        if family.settings["bucket_size"] != 256
        and (family.method in ("ecdq", "eden", "drive", "trn") or not _options_of(family))
    ]
    shown = [entry for entry in accuracy_figure.SHOWN if not entry[1] or entry[0] in ("ecdq", "eden")]
    monkeypatch.setattr(accuracy_curves, "families", lambda: chosen)
    monkeypatch.setattr(accuracy_figure, "SHOWN", shown)
    curves = accuracy_curves.curves_of(SOURCE)
    accuracy_per_bit.print_table(SOURCE, curves)
    assert "TRN" in capsys.readouterr().out

    ecdq = next(family for family in curves if family.label() == "ECDQ, dithered, rANS")
    assert any(abs(point.bits - 2) < 0.01 for point in curves[ecdq])  # tuned to a total of 2
    other, point = best(curves, 3, "others") or pytest.fail("nobody reaches 3 bits")
    assert other.method == "ecdq" and point.error == pytest.approx(0.0235, rel=0.25)  # short: the coder's table counts
    winner, point = best(curves, 3, "all") or pytest.fail("nobody reaches 3 bits")
    assert winner.label().startswith("EDEN, uniform steps, rANS") and point.error == pytest.approx(0.0235, rel=0.1)
    found = accuracy_per_bit.contests(curves)
    assert (
        found["3"]["all"]["name"] == winner.label()
        and not found["3"]["below_eden"]
        and json.loads(json.dumps(found)) == found
    )

    accuracy_curves.write_points(tmp_path / "points.csv", {"normal": curves})
    assert len((tmp_path / "points.csv").read_text().splitlines()) == 1 + sum(map(len, curves.values()))
    assert [path.stat().st_size > 5000 for path in accuracy_figure.draw({"Normal": curves}, tmp_path)] == [True, True]


def test_errors_of_a_mean_are_those_of_a_message_unless_workers_round_together(monkeypatch):
    monkeypatch.setattr(accuracy_of_mean, "WORKERS", (2,))
    monkeypatch.setattr(accuracy_of_mean, "DRAWS", 8)
    alone, together = (
        Family("qsgdinf", (("coding", "packed"), ("rounding", how))) for how in ("stochastic", "correlated")
    )
    monkeypatch.setattr(accuracy_of_mean, "FAMILIES", (alone, together))
    curves = accuracy_of_mean.curves_of(SOURCE)
    _, of_message = accuracy_curves.measure(accuracy_curves.build(alone, 3, SOURCE), SOURCE)
    first, second = (reached_at(curves[2][family], 3.1) for family in (alone, together))
    assert first and first.error == pytest.approx(of_message, rel=0.1)
    assert second and second.error < 0.6 * first.error
    # one scale for all: the largest bucket norm of two, after a rotation that does nothing to normal coordinates
    assert error_at(curves[2][accuracy_of_mean.SHARED_SCALE], 3.1) == pytest.approx(first.error, rel=0.2)
    assert accuracy_of_mean.table(curves, 3)[1][0] == together.label() == "QSGDinf, correlated"
    assert accuracy_of_mean.winners(curves)["3"]["2"]["name"] == together.label()


def _options_of(family: Family) -> str:
    return family.label().partition(", ")[2].replace("l2", "")
