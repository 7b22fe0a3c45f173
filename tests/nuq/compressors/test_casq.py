"""CASQ: clusters, cells, what travels, and what is kept between refreshes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from nuq import native as cpu
from nuq.compressors.casq import Casq
from nuq.compressors.message import Message, parse
from nuq.errors import MessageError
from nuq.kernels import reference
from nuq.kernels.sketches import cells, clusters
from nuq.kernels.spec import Key
from nuq.settings.sketches import CASQ
from tests.tiers import few

KEY = Key(1, 2, 3, "x")


def make(**given: Any) -> Casq:
    return Casq(CASQ(**given))


def heavy(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp()


def through(method: Casq, x: torch.Tensor, key: Key = KEY) -> torch.Tensor:
    return make().decode(parse(method.encode(x, key).to_bytes().clone()))


def error(method: Casq, x: torch.Tensor) -> float:
    return float((through(method, x) - x).double().square().sum() / x.double().square().sum())


def test_k_means_finds_clusters_that_lie_apart() -> None:
    values = torch.cat(
        [centre + 0.01 * heavy(200, seed) for seed, centre in enumerate([1.0, 2.0, 5.0, -3.0, -4.0, -9.0])]
    ).numpy()
    above, below = clusters.trained(values, 3, 100)
    assert above == pytest.approx([1.5, 3.5], abs=0.02) and below == pytest.approx([3.5, 6.5], abs=0.02)


def test_k_means_is_a_fixed_point() -> None:
    values = np.abs(heavy(2000).clamp(-3, 3).numpy())
    edges = np.concatenate([[0], clusters.trained(values, 6, 100)[0], [np.inf]])
    means = [values[(values > low) & (values <= high)].mean() for low, high in itertools.pairwise(edges)]
    assert np.allclose(edges[1:-1], (np.array(means[1:]) + means[:-1]) / 2, rtol=0.02)


def test_outliers_are_a_cluster_of_their_own() -> None:
    values = heavy(10_000).numpy()
    above, below = clusters.trained(values, 5, 95)
    assert above[-1] == pytest.approx(np.percentile(values[values > 0], 95), rel=0.01)
    assert below[-1] == pytest.approx(np.percentile(-values[values < 0], 95), rel=0.01)
    assert (np.diff(above) > 0).all() and above.shape == (4,)


def test_the_sample_is_one_of_each_part_under_a_key() -> None:
    x = torch.arange(1000.0)
    first, again, other = (clusters.sample(x, 100, words) for words in ((1, 2), (1, 2), (3, 4)))
    assert (first // 10 == np.arange(100)).all() and (first == again).all() and (first != other).any()
    assert (clusters.sample(x, 1000, (1, 2)) == x.numpy()).all()


@pytest.mark.parametrize("number", [2, 16, 17, 100])
def test_numbers_are_clusters_by_sign(number: int) -> None:
    x = torch.cat([heavy(3001), torch.zeros(5), -torch.zeros(3)])
    thresholds = clusters.trained(x.numpy(), number, 95)
    x[:10] = torch.tensor(
        [t for t in thresholds.ravel() if np.isfinite(t)][:1] * 10
    )  # a threshold belongs to the lower cluster
    found = cells.numbers(x, thresholds, 1).numpy()
    for sign, edges in zip((1, -1), thresholds, strict=True):
        side = sign * x.numpy()
        expected = 1 + (number if sign < 0 else 0) + (side[:, None] > edges).sum(axis=1)
        assert (found[side > 0] == expected[side > 0]).all()
    assert (found[x.numpy() == 0] == 0).all()


def test_cells_hold_means_of_what_is_hashed_to_them() -> None:
    x, method = heavy(500), make(clusters=3, cells=7)
    back, ids = through(method, x), cells.numbers(x, method.thresholds(x, KEY), 1)
    sizes = np.bincount(ids.numpy(), minlength=7)
    hashes = reference.hash_bits(500, KEY).long() & 0xFFFFFFFF
    cell = hashes * torch.from_numpy(np.minimum(sizes, 7))[ids.long()] >> 32
    for number in range(1, 7):
        for place in range(7):
            inside = (ids == number) & (cell == place)
            assert torch.allclose(back[inside], x[inside].double().mean().float(), rtol=1e-6, atol=0)
    assert abs(float((x.double() - back).dot(back.double()))) < 1e-5 * float(x.double().square().sum())  # a projection


@pytest.mark.parametrize("values, tolerance", [("fp32", 1e-6), ("fp16", 1e-3)])
def test_clusters_of_one_value_are_exact(values: str, tolerance: float) -> None:
    x = torch.tensor([-2e-30, 1e-31, 0.0, 5e-30]).repeat(100)
    assert torch.allclose(
        through(make(clusters=4, cells=1, values=values, outlier_percentile=100.0), x), x, rtol=tolerance, atol=0
    )


def test_more_clusters_and_more_cells_err_less() -> None:
    x = heavy(20_000).clamp(-4, 4)
    errors = [error(make(clusters=number, outlier_percentile=100.0), x) for number in (2, 4, 16, 64)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.01 * errors[0]
    errors = [error(make(cells_ratio=ratio, clusters=2), x) for ratio in (0.01, 0.3, 1.0)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.6 * errors[0]


def test_bits_are_the_entropy_of_the_clusters_and_the_cells() -> None:
    x, n = torch.randn(100_000, generator=torch.Generator().manual_seed(3)), 100_000
    method = make(coding="rans", values="fp16")
    shares = np.bincount(cells.numbers(x, method.thresholds(x, KEY), 1).numpy(), minlength=17)[1:] / n
    entropy = -float((shares * np.log2(shares)).sum())
    assert method.cells_per_cluster(n) == 63
    bits = 8 * method.encode(x, KEY).num_bytes / n
    assert entropy + 16 * 63 * 16 / n < bits < 1.02 * entropy + 16 * 63 * 16 / n + 0.02
    assert method.encode(x, KEY).num_bytes < make().encode(x, KEY).num_bytes <= make().message_bytes(n)


def test_clusters_are_kept_between_refreshes_by_worker_and_parameter() -> None:
    method, x, y = make(refresh_every=10), heavy(1000), 3 * heavy(1000, 1)
    first = method.thresholds(x, Key(1, 10, 0, "a"))
    assert (method.thresholds(y, Key(1, 19, 0, "a")) == first).all()
    assert (method.thresholds(y, Key(1, 20, 0, "a")) != first).any()
    for other in (Key(1, 10, 1, "a"), Key(1, 10, 0, "b")):
        assert (method.thresholds(y, other) != first).any()
    assert not make().state_dict() and set(method.state_dict()["by_worker"]) == {0, 1}


def test_a_resumed_sender_goes_on_with_its_clusters() -> None:
    method, resumed, fresh = (make(refresh_every=10) for _ in range(3))
    method.encode(heavy(1000), Key(1, 10, 0, "a"))
    resumed.load_state_dict(method.state_dict())
    x, key = 3 * heavy(1000, 1), Key(1, 15, 0, "a")
    data = method.encode(x, key).to_bytes()
    assert torch.equal(resumed.encode(x, key).to_bytes(), data) and not torch.equal(
        fresh.encode(x, key).to_bytes(), data
    )
    assert torch.equal(fresh.decode(parse(data)), method.decode(parse(data)))


def test_a_gradient_that_is_thrown_away_leaves_no_clusters() -> None:
    method, bad = make(refresh_every=10), torch.full((10,), float("nan"))
    with pytest.raises(ArithmeticError):
        method.encode(bad, Key(1, 10, 0, "a"))
    assert method.state_dict() == {"by_worker": {}}


@few(2, "n", [1, 17, 5000, 200_000])
def test_the_library_and_pytorch_give_the_same_bits(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.where(torch.arange(n) % 5 == 0, 0.0, heavy(n))
    methods = [make(), make(clusters=40, cells_ratio=0.5, coding="rans"), make(values="fp16", outlier_percentile=100.0)]
    threads = torch.get_num_threads()
    native = [method.encode(x, KEY) for method in methods]
    decoded = [method.decode(message) for method, message in zip(methods, native, strict=True)]
    try:
        torch.set_num_threads(3)
        assert all(torch.equal(m.encode(x, KEY).body, message.body) for m, message in zip(methods, native, strict=True))
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(cpu, "library", lambda: None)
    for method, message, values in zip(methods, native, decoded, strict=True):
        assert torch.equal(method.encode(x, KEY).body, message.body) and torch.equal(method.decode(message), values)


@pytest.mark.skipif(cpu.library() is None, reason="the C++ kernels are not built")
def test_every_instruction_set_gives_the_same_bits() -> None:
    x = torch.where(torch.arange(5003) % 5 == 0, 0.0, heavy(5003))
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name in cpu.instruction_sets():
        with cpu.using(name):
            for number in (5, 40):
                message = make(clusters=number).encode(x, KEY)
                found.append((message.body, make().decode(message)))
    assert all(
        torch.equal(a, b) for one, two in zip(found, found[2:], strict=False) for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("native", [True, False])
def test_a_cluster_without_cells_is_damage(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(cpu, "library", lambda: None)
    message = make(clusters=2, cells=1).encode(heavy(100), KEY)
    body = message.body.clone()
    body[12:16] = 0  # the first cluster's, whose mean goes too
    body = torch.cat([body[:28], body[32:]])
    with pytest.raises(MessageError):
        make().decode(Message(message.tag, 100, body))
