"""PowerSGD's thin products in a fixed order, and the orthonormal rows between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nuq import native
from nuq.kernels.low_rank import (
    columns_of,
    left_product,
    num_rows,
    orthonormal,
    outer_product,
    right_product,
    started_again,
)
from nuq.kernels.spec import Key

SIZES = [(1, 1), (7, 3), (1000, 32), (10003, 101), (600 * 65, 65), (3 * 513 + 4, 513), (70 * 1030, 1030)]


@pytest.mark.skipif(native.library() is None, reason="the C++ kernels are not built")
@pytest.mark.parametrize(("size", "columns"), SIZES)
def test_compiled_products_have_the_bits_of_the_reference(size, columns, monkeypatch):
    generator, rank, before = torch.Generator().manual_seed(size), 3, torch.get_num_threads()
    matrix = torch.randn(size, generator=generator)
    right = torch.randn(rank, columns, generator=generator)
    left = torch.randn(rank, num_rows(size, columns), generator=generator)

    def results() -> list[torch.Tensor]:
        overwritten, grown = torch.full((size,), torch.nan), matrix.clone()
        outer_product(left, right, overwritten)
        outer_product(left, right, grown, accumulate=True)
        return [left_product(matrix, columns, right), right_product(matrix, columns, left), overwritten, grown]

    with monkeypatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        expected = results()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for name in native.instruction_sets():
                with native.using(name):
                    assert all(torch.equal(a, b) for a, b in zip(results(), expected, strict=True)), (threads, name)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("size", "columns"), SIZES)
def test_products_are_those_of_matrices(size, columns):
    generator = torch.Generator().manual_seed(size)
    matrix = torch.randn(size, generator=generator)
    whole = torch.nn.functional.pad(matrix, (0, -size % columns)).view(-1, columns).double()
    right, left = torch.randn(2, columns, generator=generator), torch.randn(2, whole.shape[0], generator=generator)
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(left_product(matrix, columns, right).double(), right.double() @ whole.T, **close)
    torch.testing.assert_close(right_product(matrix, columns, left).double(), left.double() @ whole, **close)
    outer_product(left, right, matrix)
    torch.testing.assert_close(matrix.double(), (left.double().T @ right.double()).reshape(-1)[:size], **close)


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_orthonormal_rows_span_the_same(scale):
    rows = torch.randn(4, 50, generator=torch.Generator().manual_seed(1)) * scale
    rows[2] = rows[0] - 3 * rows[1]  # not a direction of its own
    made = orthonormal(rows).double()
    expected = torch.eye(4, dtype=torch.float64)
    expected[2, 2] = 0
    torch.testing.assert_close(made @ made.T, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(rows.double() / scale @ made.T @ made, rows.double() / scale, rtol=0, atol=1e-4)


def test_what_a_start_lacks_is_drawn():
    """Else a rank that is lost once, in a gradient of zeros, would be lost for good."""
    last = torch.zeros(3, 40)
    last[0, :] = 1.0
    made = started_again(last, Key(1, 2, 0, "p"))
    torch.testing.assert_close(made @ made.T, torch.eye(3), rtol=0, atol=1e-6)
    assert torch.equal(made, started_again(last, Key(1, 2, 0, "p"))) and not torch.equal(
        made, started_again(last, Key(1, 3, 0, "p"))
    )


@pytest.mark.parametrize(
    ("shape", "columns"), [((64, 3, 7, 7), 147), ((10,), 4), ((512, 512), 512), ((0, 4), 0), ((), 1), ((1,), 1)]
)
def test_tensors_as_matrices(shape, columns):
    assert columns_of(shape) == columns
