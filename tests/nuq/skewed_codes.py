"""Codes of a known, uneven distribution."""

from __future__ import annotations

import numpy as np

MILLION = 10**6


def skewed_codes(num_codes: int, num_symbols: int, decay: float, seed: int = 0) -> np.ndarray:
    """Codes whose probability falls by exp(-decay) from one symbol to the next, the symbols shuffled."""
    rng = np.random.default_rng((seed, num_codes, num_symbols))
    weights = np.exp(-decay * np.arange(num_symbols))
    ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(num_codes))
    codes = rng.permutation(num_symbols)[np.minimum(ranks, num_symbols - 1)]
    return codes.astype(np.uint8 if num_symbols <= 256 else np.uint16)
