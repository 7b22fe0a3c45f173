"""The methods under test, as texts such as ``"qsgd bits=2"``, and the vectors that they are tried on."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import pytest
import torch

from nuq.compressors.compressor import Compressor
from nuq.registry import Method, claimed, method
from nuq.settings import declared, unknown

SMALL = {"bucket_size": 64}
# tests of a claim, which methods without it do not make
OF_CLAIM = {"test_unbiased": "unbiased", "test_contractive": "contractive"}


def parametrize(metafunc: pytest.Metafunc, cases: Sequence[str], slow: Collection[str] = ()) -> None:
    """Let a test that takes ``name`` run for each of these methods, those of a claim for the methods that make it.

    One that takes ``names`` is of their settings, and runs once with a method of each kind of settings.

    slow: those whose tests get the mark ``slow``.
    """
    if "names" in metafunc.fixturenames:
        of_settings = {method(case.split()[0]).settings: case for case in reversed(cases)}
        metafunc.parametrize("names", [list(of_settings.values())[::-1]], ids=["all"])
    if "name" in metafunc.fixturenames:
        claim = OF_CLAIM.get(metafunc.function.__name__)
        claiming = [case for case in cases if claim is None or getattr(claims(case), claim)]
        marks = {case: [pytest.mark.slow] if case in slow else [] for case in claiming}
        metafunc.parametrize("name", [pytest.param(case, marks=marks[case], id=case) for case in claiming])


def claims(case: str) -> Method:
    """The entry of a method, with the claims of its settings."""
    name, *options = case.split()
    return claimed(name, _read(name, options))


def build(case: str, **settings: Any) -> Compressor:
    """The compressor of a method with these settings, else small buckets.  ValueError for what it has no setting of."""
    name, *options = case.split()
    entry = method(name)
    known = declared(entry.settings)
    chosen = {key: value for key, value in (SMALL | settings).items() if key in known}
    if "bucket_size" in chosen:
        chosen["bucket_size"] = max(chosen["bucket_size"], known["bucket_size"].rule["low"] or 1)
    chosen |= _read(name, options)
    if chosen.get("scale") == "none":
        chosen.pop("bucket_size", None)
    return entry.load()(entry.settings(**chosen))


def _read(name: str, options: Sequence[str]) -> dict[str, Any]:
    """The settings of a method from texts such as ``bits=2``."""
    known, found = declared(method(name).settings), {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in known:
            raise unknown(f"setting of method={name}", key, list(known))
        kind = known[key].type
        try:
            found[key] = value == "true" if kind is bool else kind(value)
        except ValueError:
            raise ValueError(
                f"{' '.join([name, *options])!r}: {key}={value!r} must be of type {kind.__name__}"
            ) from None
    return found


def gradient(n: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Heavier tails than normal, as gradients have."""
    generator = torch.Generator().manual_seed(seed)
    normal = functools.partial(torch.randn, n, generator=generator, dtype=torch.float32, device="cpu")
    return scale * normal() * normal().exp()


INPUTS = {
    "empty": torch.empty(0, dtype=torch.float32, device="cpu"),
    "one": torch.tensor([3.0], dtype=torch.float32, device="cpu"),
    "zeros": torch.zeros(100, dtype=torch.float32, device="cpu"),
    "a bucket": gradient(64),
    "two buckets": gradient(128),
    "a tail": gradient(129),
    "a short tail bucket": gradient(200),
    "huge": gradient(200, scale=1e30),
    "tiny": gradient(200, scale=1e-30),
    "constant": torch.full((70,), -2.5, dtype=torch.float32, device="cpu"),
    "mostly zero": torch.cat([torch.zeros(150, dtype=torch.float32, device="cpu"), gradient(20)]),
    "bfloat16": gradient(100).bfloat16(),
}


def sparse(n: int, *indices: int) -> torch.Tensor:
    """Zero but for a few coordinates of different sizes."""
    x = torch.zeros(n, dtype=torch.float32, device="cpu")
    x[list(indices)] = torch.linspace(1.0, -2.0, len(indices), dtype=torch.float32, device="cpu")
    return x


UNBIASED_INPUTS = {
    "long": gradient(1000),
    "short": gradient(3),
    "one of seven": sparse(7, 4),
    "two of a hundred": sparse(100, 10, 77),
    "five of 300": sparse(300, 0, 1, 99, 200, 299),
    "constant": torch.full((65,), 0.3, dtype=torch.float32, device="cpu"),
}
