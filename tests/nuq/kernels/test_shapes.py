"""The shapes in nuq's annotations are checked while the tests run."""

import jaxtyping
import pytest
import torch

from nuq.kernels import bit_packing, reference


@pytest.mark.parametrize(
    "call",
    [
        lambda: reference.tree_sum(torch.ones(3)),
        lambda: reference.tree_sum(torch.ones(2, 3)),
        lambda: bit_packing.pack_codes(torch.ones(3), 2),
    ],
)
def test_a_wrong_shape_or_type_is_refused(call):
    with pytest.raises(jaxtyping.TypeCheckError):
        call()
