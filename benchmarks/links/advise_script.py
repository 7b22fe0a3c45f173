"""An ordinary DDP training of one of ``MODELS``: ``benchmarks/links/advise_script.py MODEL BATCH``.

It is what ``python -m nuq advise`` is given by ``advise``, and knows nothing of compression.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.links.models import LOCAL_BUFFERS, MODELS, batch_of

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    options: Any = {LOCAL_BUFFERS: False}
    model = DistributedDataParallel(MODELS[sys.argv[1]](), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs, targets = batch_of(model.module, int(sys.argv[2]))
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten()).backward()
        optimizer.step()
