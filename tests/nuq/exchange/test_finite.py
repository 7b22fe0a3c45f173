"""Parts of a vector that lie together in memory are joined without a copy."""

import numpy as np
import torch

from nuq.exchange.finite import joined


def test_parts_that_lie_together_are_joined_without_a_copy():
    flat = torch.arange(20.0)
    a, b, c = flat[2:8].view(2, 3), flat[8:8], flat[8:20].view(3, 4)
    vector = joined([a, b, c])
    assert torch.equal(vector, flat[2:]) and vector.data_ptr() == a.data_ptr()


def test_parts_that_do_not_are_copied_in_order():
    flat = torch.arange(20.0)
    for parts in (
        [flat[8:], flat[:8]],
        [flat[:8], flat[9:]],
        [flat[:12].view(3, 4).T, flat[12:]],
        [flat[:8], flat[8:].clone()],
    ):
        vector = joined(parts)
        assert torch.equal(vector, torch.cat([part.reshape(-1) for part in parts]))
        assert vector.data_ptr() != flat.data_ptr()


def test_storages_that_share_their_memory():
    numbers = np.arange(10, dtype=np.float32)
    assert torch.equal(joined([torch.from_numpy(numbers[:4]), torch.from_numpy(numbers)[4:]]), torch.arange(10.0))
