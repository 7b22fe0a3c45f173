"""Fixtures that tests of several benchmarks share."""

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore


@pytest.fixture(scope="module")
def alone():
    """A group of one rank: a hook's mean is its own gradient."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
