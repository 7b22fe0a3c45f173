"""Methods of one kind: where a test takes many steps or draws, `make test` runs one of a kind, `make test-all` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

# another method has the same code, with other levels, another table or another rule of selection
SPOKEN_FOR = frozenset(
    (
        *("qsgd", "nuqsgd", "trn", "natural"),  # by qsgdinf
        *("alq_n", "alq_g", "alq_gn", "amq", "amq_n", "optimal"),  # by alq
        *("drive", "onebit", "fp8", "fp16", "s2fp8"),  # by eden, sign, block8, bf16 and smaq
        *("randomk", "thresholdv", "adaptive_threshold", "nonzero"),  # by topk
    )
)


def one_of_a_kind(names: Iterable[str]) -> list[Any]:
    """Parameters of a test from names that begin with a method's: slow where another speaks for that one."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name.split()[0] in SPOKEN_FOR)) for name in names]
