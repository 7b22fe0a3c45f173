"""The contract of ``nuq.testing`` for every entry of METHODS and for settings of it, and the errors of theory."""

import pytest
import torch

from nuq.compressors.eden import Eden
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.testing.cases import build, gradient, parametrize
from nuq.testing.test_contract import *  # noqa: F403 - its tests
from tests.theory import expected_error

# Options compose with the members of the quantizer's family; these go through every test like a method of their own.
VARIANTS = (
    "qsgdinf dither=subtractive",
    "qsgd rotation=hadamard",
    "trn coding=huffman dither=subtractive",
    "alq norm=quantile",
    "alq_n norm=linf coding=rans",
    "nuqsgd rotation=hadamard coding=rans",
    "alq rounding=correlated coding=rans",
    "natural rounding=correlated",
    "ecdq rotation=hadamard",
    "eden levels=uniform coding=rans",
    "eden levels=uniform coding=huffman bits=1",
    "eden levels=uniform coding=rans bits=7 scale=mse",
    "sign scale=rms",
    "block8 rounding=stochastic",
    "block8 table=linear",
    "block8 table=linear rounding=stochastic",
    "fp8 table=e5m2 rounding=stochastic",
    "fp8 rounding=stochastic",
    "fp8 scale=none",
    "fp8 scale=none table=e5m2 rounding=stochastic",
    "fp16 rounding=stochastic",
    "bf16 rounding=stochastic",
    "bf16 coding=rans",
    "fp16 coding=rans rounding=stochastic",
    "smaq samples=16",
    "smaq zeros=coded",
    "smaq rounding=nearest bits_inlier=5 bits_outlier=6",
    "smaq bits_inlier=3 inlier_threshold=0.5 outlier_limit=6.0",
    "s2fp8 rounding=stochastic",
    "nnw_bdi rounding=stochastic",
    "nnw_bdi bits=5",
    "topk bucket_size=0 ratio=0.3 values=fp16 indices=bitmap",
    "topk bucket_size=0 ratio=0.1 selection=sampled indices=delta",
    "randomk bucket_size=0 ratio=0.2",
    "randomk ratio=0.5 scaled=false values=fp16",
    "thresholdv threshold=0.5 values=fp16",
    "adaptive_threshold bucket_size=0 indices=int32",
    "dgc dense_1d=false ratio=0.05",
    "dgc scope=model selection=exact ratio=0.1 indices=int32",
    "casq clusters=3 cells=4 values=fp16 coding=rans outlier_percentile=100.0",
    "casq clusters=40 cells_ratio=1.0 sample_size=16 refresh_every=3",
    "sketchml rows=0 coding=rans sample_size=16",
    "sketchml rows=1 buckets=10 groups=3 columns_ratio=1.0 coding=rans",
    "demo k=4 chunk=16 values=fp16",
    "demo scope=model chunk=7 k=2 indices=int32",
    "powersgd dense_1d=false",
    "powersgd scope=model rank=1 values=fp16",
    "powersgd scope=model rank=4 iterations=2",
    "atomo svd_rank=1",
    "atomo svd_rank=1 svd=randomized",
    "atomo svd=randomized",
    "atomo bits=4",
    "atomo svd_rank=1 bits=1",
    "atomo scope=model svd=exact svd_rank=2",
    "atomo atoms=entries",
    "atomo atoms=entries ratio=0.3",
)
CASES = (*METHODS, *VARIANTS)
# Where there are many draws: another method has the code of these, with other levels, another table or another rule.
SLOW = {
    *VARIANTS,
    *("qsgd", "nuqsgd", "trn", "natural"),  # by qsgdinf
    *("alq_n", "alq_g", "alq_gn", "amq", "amq_n", "optimal"),  # by alq
    *("drive", "onebit", "fp8", "fp16", "s2fp8"),  # by eden, sign, block8, bf16 and smaq
    *("randomk", "thresholdv", "adaptive_threshold", "nonzero"),  # by topk
}
# of whose error ``tests.theory`` has no formula: methods, and settings of others
CLAIMS_ALONE = {
    *("topk", "thresholdv", "adaptive_threshold", "nonzero", "dgc", "demo", "powersgd"),
    *("casq", "sketchml", "s2fp8", "nnw_bdi"),
    *("samples=16", "rounding=nearest", "svd=randomized"),
}
OF_THEORY = [case for case in CASES if not CLAIMS_ALONE & {*case.split()}]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function is test_the_error_is_the_one_of_theory:
        parametrize(metafunc, OF_THEORY, slow={*OF_THEORY} - {"qsgdinf", "alq", "eden", "sign", "smaq", "randomk"})
    else:
        parametrize(metafunc, CASES, slow=SLOW if metafunc.function.__name__ == "test_unbiased" else ())


def test_the_error_is_the_one_of_theory(name):
    """``tests.theory``: on average over the keys."""
    compressor, x, count = build(name), gradient(512), 300
    keys = [Key(1, step, 0, "x") for step in range(count)]
    expected = [error for key in keys if (error := expected_error(compressor, x, key)) is not None]
    assert len(expected) == count
    draws = torch.stack([compressor.decode(compressor.encode(x, key)) for key in keys]).double()
    errors = (draws - x.double()).square().sum(dim=1)
    away = errors - torch.tensor(expected, dtype=torch.float64)
    margin = 0.05 if isinstance(compressor, Eden) else 0.01  # a bucket of 128 is 2 % off
    assert abs(float(away.mean())) <= 4 * float(away.std()) / count**0.5 + margin * expected[0]


def test_what_has_a_formula_is_held_to_it():
    """The methods and settings that are left to their claims have none."""
    x, key = gradient(512), Key(1, 0, 0, "x")
    assert not [case for case in CASES if case not in OF_THEORY and expected_error(build(case), x, key) is not None]
