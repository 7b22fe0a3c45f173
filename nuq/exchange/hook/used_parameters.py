"""The parameters that no rank used in a step: DDP leaves their gradients as they are, whatever the hook returns.

DDP looks for them with ``find_unused_parameters`` and ``static_graph`` alone; without, every parameter of a bucket is
used.  One that no rank used is not one whose gradient is zero: what is remembered of it has to stay, as a message of it
would be thrown away.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from nuq.exchange.hook.buckets import Bucket
from nuq.exchange.transport import Transport

_BITS = 63  # in one of the numbers that ranks exchange


class UsedParameters:
    """Notes which parameters had a gradient since the last bucket with them, as DDP does, over ``no_sync`` too.

    parameters: those of which something is remembered.
    """

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
        self.names = frozenset(parameters)
        self._model, self._used = model, set[str]()
        self._looks: bool | None = None  # whether DDP looks for unused ones, once that is known
        inside = _ddps_in(model)
        watched = parameters if not inside or _look(inside) else {}
        handles = [
            # before DDP's own, which hands the bucket over
            p.register_post_accumulate_grad_hook(functools.partial(_note, self._used, name))
            for name, p in watched.items()
        ]
        self._stop = weakref.finalize(self, _remove, handles)

    @property
    def looks(self) -> bool:
        """Whether DDP looks for unused parameters, the same on all ranks; asked when it has handed a bucket over."""
        if self._looks is None:
            found = _ddps_in(self._model) or _ddps_around(self._model)
            self._looks = _look(found) if found else True  # where nothing tells
            if not self._looks:
                self._stop()
        return self._looks

    def taken(self, names: Collection[str]) -> frozenset[str]:
        """The parameters of a bucket that this rank used; from now on the next one's are noted."""
        found = self._used.intersection(names)
        self._used -= found
        return frozenset(found)

    def by_none(self, buckets: Sequence[Bucket], transport: Transport) -> frozenset[str]:
        """The parameters of these buckets that no rank used.  A collective call: every rank makes it."""
        names = [name for bucket in buckets for name in bucket.names if name in self.names]
        used = frozenset[str]().union(*(bucket.used for bucket in buckets))
        blocks = [names[start : start + _BITS] for start in range(0, len(names), _BITS)]
        if not blocks:
            return frozenset()
        mine = [sum((name in used) << at for at, name in enumerate(block)) for block in blocks]
        rows = transport.numbers(mine, "control")
        of_any = [functools.reduce(int.__or__, column) for column in zip(*rows, strict=True)]
        pairs = zip(blocks, of_any, strict=True)
        return frozenset(name for block, bits in pairs for at, name in enumerate(block) if not bits >> at & 1)


def _note(used: set[str], name: str, parameter: Tensor) -> None:
    if parameter.grad is not None:  # an output that the loss does not use gives none
        used.add(name)


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def _look(found: Sequence[DistributedDataParallel]) -> bool:
    return any(ddp.find_unused_parameters or ddp.static_graph for ddp in found)


def _ddps_in(model: nn.Module) -> list[DistributedDataParallel]:
    return [module for module in model.modules() if isinstance(module, DistributedDataParallel)]


def _ddps_around(model: nn.Module) -> list[DistributedDataParallel]:
    """What wraps a model that knows nothing of it, among all that lives: a look of some 0.1 s."""
    gc.collect()  # of those that wrapped it before
    own = {id(parameter) for parameter in model.parameters()}
    every = [found for found in gc.get_objects() if issubclass(type(found), DistributedDataParallel)]
    return [ddp for ddp in every if not own.isdisjoint(map(id, ddp.parameters()))]
