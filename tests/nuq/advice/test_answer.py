"""The rows of the answer: bytes and errors of real messages, the order by predicted steps, and what is recommended."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from nuq.advice import measured
from nuq.advice.answer import Advice, Row, advice
from nuq.advice.network_rates import NetworkRates
from nuq.advice.script import Observed
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.mean_error import least_bits
from nuq.kernels.spec import Key
from nuq.prediction.steps import Network
from nuq.registry import METHODS

SHAPES = {"weight": torch.Size((400, 300)), "bias": torch.Size((300,))}
SIZE = 400 * 300 + 300
NETWORK = NetworkRates(1e-5, 1e-5, 0.0, 1e6, {"fp32": 0.02, "bf16": 0.02})


@pytest.fixture(scope="module")
def seen() -> Observed:
    random = torch.Generator().manual_seed(5)
    common = torch.randn(SIZE, generator=random)
    gradients = [common + torch.randn(SIZE, generator=random) for _ in range(4)]
    return Observed(SHAPES, gradients, [(("weight", "bias"), 1.0)], 0.1, 0.01)


@pytest.fixture(scope="module")
def found(seen: Observed) -> Advice:
    """On a link so slow that bytes alone count."""
    methods = [("alq", {}), ("alq", {"bits": 2}), ("topk", {"ratio": 0.01}), ("powersgd", {}), ("fp8", {})]
    methods = [(name, {**settings, "min_size": 0}) for name, settings in methods]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "LIMIT_S", 0.0)
        return advice(seen, NETWORK, methods, Network(4, 1e6))


def _plainly(row: Row) -> str:
    return row.name.removesuffix(" min_size=0")  # so that the small tensor is compressed, too


@pytest.mark.slow
def test_a_slow_link_orders_by_bytes(found: Advice) -> None:
    names = [_plainly(row) for row in found.rows]
    assert set(names) == {"fp32", "bf16", "alq", "alq bits=2", "topk ratio=0.01", "powersgd", "fp8"}
    assert names[-2:] == ["bf16", "fp32"]
    assert [row.bytes_sent for row in found.rows] == sorted(row.bytes_sent for row in found.rows)
    of = {_plainly(row): row for row in found.rows}
    assert of["fp32"].bytes_sent == 2 * of["bf16"].bytes_sent == round(2 * 3 / 4 * 4 * SIZE)
    assert of["powersgd"].bytes_sent == pytest.approx(2 * 3 / 4 * 4 * (2 * (400 + 300) + 300), rel=0.05)
    assert of["topk ratio=0.01"].collective == "gather"  # three messages of 1200 values and places, and what is around
    assert of["topk ratio=0.01"].bytes_sent == pytest.approx(3 * 1203 * 5, rel=0.15)
    for row in found.rows:
        assert row.step_s > 8 * row.bytes_sent / 1e6
        assert (row.break_even_bit_s is None) == (row.name in ("fp32", "bf16"))
        assert row.remembers == (row.method in ("topk", "powersgd"))
        assert row.biased == (row.method in ("topk", "powersgd", "fp8"))
        assert (row.mark == "!") == (row.method == "fp8") and (row.mark == "*") == row.remembers
    assert all(row.break_even_bit_s > 1e6 for row in found.rows if row.break_even_bit_s is not None)


def test_the_break_even_fits_the_row(seen: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds of more bytes, as those of FP16 here, pay on quick links alone."""
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    far = replace(NETWORK, latency_s=0.05, busy_latency_s=0.05)
    for link, is_quicker in ((1e5, False), (1e8, True)):
        rows = {row.name: row for row in advice(seen, far, [("fp16", {})], Network(4, link)).rows}
        fp16 = rows["fp16"]
        assert (fp16.step_s < rows["bf16"].step_s) == is_quicker
        assert 1e6 < fp16.pays_from_bit_s < 5e7 and fp16.break_even_bit_s == math.inf
        assert (fp16.pays_from_bit_s < link) == is_quicker


@pytest.mark.slow
def test_errors_are_of_the_mean(found: Advice, seen: Observed) -> None:
    of = {_plainly(row): row.error for row in found.rows}
    exact = torch.stack(seen.gradients).mean(dim=0)
    method = METHODS["topk"]
    topk = method.load()(method.settings(ratio=0.01, scope="tensor"))
    total = torch.zeros(SIZE)
    for worker, gradient in enumerate(seen.gradients):
        for piece, place in ((gradient[:-300], slice(0, -300)), (gradient[-300:], slice(-300, None))):
            total[place] += topk.decode(topk.encode(piece, Key(0, 0, worker))) / 4
    expected = float((total - exact).square().sum() / exact.square().sum())
    assert of["topk ratio=0.01"] == pytest.approx(expected, rel=1e-4)
    assert of["fp32"] == 0 < of["bf16"] < 1e-4 < of["fp8"] < of["alq"] < of["alq bits=2"] < of["powersgd"] < 1
    # four gradients, each the common part and as much of its own
    assert found.noise == pytest.approx((1 / 4) / (1 + 1 / 4), rel=0.05)


def _row(name: str, step_s: float, error: float) -> Row:
    return Row(name, {}, "gather", step_s, None, 0, error, remembers=False, encode_s=0.0, decode_s=0.0)


def test_the_quickest_below_the_noise_is_recommended() -> None:
    rows = [_row("topk", 1.0, 0.9), _row("alq", 1.1, 0.1), _row("fp8", 1.2, 0.01), _row("fp32", 1.25, 0.0)]
    assert [Advice(rows, noise).recommended.name for noise in (1.0, 0.2, 0.05, 0.0)] == ["topk", "alq", "fp32", "fp32"]
    assert Advice(rows, 0.2).quickest.name == "topk"  # fp8 is not worth two lines


def test_errors_that_add_up_are_not_recommended() -> None:
    rows = [replace(_row("topk", 1.0, 0.1), biased=True), _row("alq", 1.1, 0.1), _row("fp32", 1.25, 0.0)]
    assert Advice(rows, 0.2).recommended.name == "alq"
    assert Advice([rows[0], rows[2]], 0.2).recommended.name == "fp32"
    remembered = [replace(rows[0], remembers=True), *rows[1:]]
    assert Advice(remembered, 0.2).recommended.name == "topk"


def test_what_compresses_nothing_is_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    shapes = {"weight": torch.Size((2, 10)), "bias": torch.Size((2,))}
    gradients = [torch.randn(22, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    small = Observed(shapes, gradients, [(("weight", "bias"), 1.0)], 0.1, 0.01)
    found = advice(small, NETWORK, [("eden", {}), ("eden", {"min_size": 0})], Network(2, 1e9))
    assert {row.name: row.mark for row in found.rows} == {"eden": "=", "eden min_size=0": "", "fp32": "", "bf16": ""}
    rows = [replace(_row("eden", 1.0, 0.1), whole=True), _row("fp32", 2.0, 0.0)]
    assert Advice(rows, 0.2).recommended.name == Advice(rows, 0.2).quickest.name == "fp32"


@pytest.mark.parametrize(
    ("method", "settings", "biased"),
    [
        ("topk", {"feedback": "none"}, True),
        ("eden", {}, False),
        ("eden", {"scale": "mse"}, True),
        ("fp8", {"rounding": "correlated"}, False),
        ("trn", {"clip_sigma": 2.5}, True),
        ("smaq", {"rounding": "correlated"}, True),  # which clamps, however it rounds
    ],
)
def test_settings_decide_on_bias(
    method: str, settings: dict[str, object], biased: bool, seen: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    way = measured.of_method(HookSettings.of(method, (), settings), seen, 2)
    assert (way.biased, way.remembers) == (biased, False)


@pytest.mark.slow
def test_two_stages_are_predicted_with_the_bits_of_the_means(seen: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    more = replace(seen, gradients=seen.gradients * 2)
    (row,) = [one for one in advice(more, NETWORK, [("qsgdinf", {"bits": 3})], Network(64, 1e8)).rows if one.asked]
    assert row.collective == "two_stage"
    of_means = least_bits("qsgdinf", METHODS["qsgdinf"].settings(bits=3), 4, 64, SIZE)
    assert of_means is not None
    assert row.bytes_sent == pytest.approx(63 / 64 * SIZE * (3 + of_means) / 8, rel=0.15)


def test_powersgd_without_a_matrix_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    shapes = {"weight": torch.Size((2, 10)), "bias": torch.Size((2,))}
    gradients = [torch.randn(22, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    small = Observed(shapes, gradients, [(("weight", "bias"), 1.0)], 0.1, 0.01)
    found = advice(small, NETWORK, [("powersgd", {})], Network(2, 1e9))
    (row,) = (row for row in found.rows if row.method == "powersgd")
    assert row.encode_s == row.decode_s == 0 < row.step_s
    assert row.bytes_sent == 4 * 22
    vectors = replace(small, shapes={"scale": torch.Size((20,)), "bias": torch.Size((2,))})
    vectors = replace(vectors, buckets=[(("scale", "bias"), 1.0)])
    marks = {
        row.name: row.mark for row in advice(vectors, NETWORK, [("powersgd", {"min_size": 0})], Network(2, 1e9)).rows
    }
    assert marks["powersgd min_size=0"] == "=", "of vectors that reach min_size"


def test_names_are_as_they_are_typed() -> None:
    row = replace(_row("alq", 1.0, 0.1), asked={"bits": 4, "norm": "linf", "scaled": True})
    assert row.name == "alq bits=4 norm=linf scaled=true"


def test_small_tensors_travel_whole(seen: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    settings = {"collective": "gather", "bits": 2}
    methods = [("qsgdinf", {**settings, "min_size": size}) for size in (0, 1024, SIZE)]
    found = advice(seen, NETWORK, methods, Network(2, 1e6))
    of = {row.asked["min_size"]: row for row in found.rows if row.asked}
    # two bits and a scale for each 8192 of 120,000; the bias in two bits, in full; and everything in full
    assert of[0].bytes_sent == pytest.approx(120_300 / 4, rel=0.02)
    assert of[1024].bytes_sent - of[0].bytes_sent == pytest.approx(300 * 4 - 300 / 4, abs=60)
    assert of[SIZE].bytes_sent == pytest.approx(4 * SIZE, rel=0.001)
    assert 0 == of[SIZE].error < of[1024].error < of[0].error


@pytest.mark.slow
def test_vectors_that_a_method_sends_as_they_are_count_whole(seen: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "LIMIT_S", 0.0)
    sent = {}
    for dense_1d in (True, False):
        asked = {"dense_1d": dense_1d, "collective": "gather", "ratio": 0.01}
        (row,) = [one for one in advice(seen, NETWORK, [("dgc", asked)], Network(2, 1e6)).rows if one.asked]
        sent[dense_1d] = row.bytes_sent
    assert sent[True] - sent[False] == pytest.approx(300 * 4, abs=120)


def test_one_vector_of_all_is_sent_at_the_end(seen: Observed) -> None:
    two = replace(seen, buckets=[(("bias",), 0.3), (("weight",), 1.0)])
    assert [(own.coordinates, own.ready, own.tensors) for own in two.model(joined=True).buckets] == [(SIZE, 1.0, 1)]
    assert [own.ready for own in two.model().buckets] == [0.3, 1.0]


def test_halves_are_not_sent_as_floats(seen: Observed) -> None:
    found = advice(replace(seen, plain="bf16"), NETWORK, [], Network(2, 1e6))
    assert [row.name for row in found.rows] == ["bf16"] and found.recommended.name == "bf16"
