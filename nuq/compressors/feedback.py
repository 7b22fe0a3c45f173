"""The memory of a worker around any method: error feedback, momentum correction and compressed differences.

**Error feedback** (Seide et al., 2014; Karimireddy et al., ICML 2019): with p = gradient + residual and q =
decoded(encoded(p)), the message stands for beta q and the residual becomes p - beta q, where beta = <p, q> / <q, q>
within [0, 1] makes every message a contraction: |p - beta q| <= |p|, also for unbiased quantizers, whose error alone
may be larger than p.  (The usual remedy divides by 1 + w with w the worst case of the variance; beta is the best such
factor for the message at hand.)  The least residual now is not the least over steps: a method that says so
(``overshoots``: signs times their root mean square) has its messages as they are, beta = 1, up to 1.9 times the best
beta, where |p - beta q| <= |p| still, by a margin.

With a ``decay`` below 1, p = gradient + decay residual: DeMo's momentum, of which what was sent is taken away (Peng,
Quesnelle, Kingma, arXiv 2411.19870, Algorithm 1; see ``nuq.compressors.demo``).

**A moving average of the errors** (LoCo: Xie, Lin, Toh, Zhou, "LoCo: Low-Bit Communication Adaptor for Large-scale
Model Training", arXiv 2407.04480, 2024; for FSDP, ``nuq.fsdp``): h = gradient + e, and with a weight w and q = beta
decoded(encoded(h)) as above, e becomes (1 - w) e + w (h - q); after every ``reset_every`` steps it is zero again.  With
w = 1 and no reset e is the residual.  As in the paper, ranks send each other their shards of h.  Differences: e is
float32 (theirs takes 8 bits), any method encodes h (theirs rounds to 4 bits), and its beta makes h - q no longer than
h.  The weight is the paper's beta, and 1 - w is ``err_beta`` in DeepSpeed's LoCo, which its authors name as theirs.

**Momentum correction** (Lin et al., Deep Gradient Compression, ICLR 2018, Section 3.1): the optimizer's momentum m acts
before the compression, in each worker: u = m u + g, p = residual + u, or with Nesterov's u = m (u + g), p = residual +
u + g; then as above.  What was sent leaves u too (factor masking, Section 3.2), where the method sends chosen
coordinates.  Gradients may be clipped before (Section 3.2), by value, and by norm to ``clip_norm / sqrt(workers)``.
Differences from DGC's code: what rounding to float16 takes from a sent coordinate stays in the residual; norms are
those of the vectors that are compressed.

**Compressed differences** (Richtarik, Sokolov, Fatkhullin, EF21, NeurIPS 2021, Algorithm 2): worker i keeps an estimate
g_i of its gradient, zero at first, sends c = beta decoded(encoded(gradient - g_i)), and g_i becomes g_i + c.  All ranks
keep the mean of the estimates: it grows by the mean of what was sent, and is what they step along.  The paper's
gradients are exact; estimates lag behind those of small batches, which takes lower rates.  As beta makes every
message a contraction, any method will do; the paper's are contractions by themselves, and beta is 1 for TopK.  Where
means are encoded again, a memory of means (``feedback.both``) keeps their errors from adding up, which is the
bidirectional EF21-BC (Fatkhullin et al., "EF21 with Bells & Whistles", arXiv 2110.03294, 2021).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message, parse, raw, unpacked
from nuq.errors import MessageError
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import Key
from nuq.native import floats

TAG = b"BETA"
MEANS = "means"
OVERSHOOT = 1.9  # times the best factor; from 2 on a residual may be longer than what was wanted
_FACTOR = struct.Struct("<f")
_PLACE = re.compile(r"(?P<name>.*?)(\[(?P<first>\d+)\])?")
Memory = dict[str, dict[str, Tensor]]  # kind -> parameter -> float32[size]


@dataclass(frozen=True)
class Owed:
    """The vector that a worker should send, and the memory that follows."""

    wanted: Tensor  # float32, of the gradient's shape
    after: dict[str, Tensor]  # what the memory, the residual apart, becomes
    memory: dict[str, Tensor]  # where that lies


class ErrorFeedback(Compressor):
    """A compressor that gives any method a memory.

    sizes: coordinates of every parameter that has one; others are encoded without.  decay: of what was left out, in a
    step.

    A message is 32 bytes longer than the method's own: its factor travels with it.  Every worker has a memory of its
    own (``memories``, by the key's worker).  Where a vector is a piece of a parameter
    (``nuq.exchange.payload.Segment.key_name``), so is its memory, so that it does not depend on how a collective cuts.
    """

    kinds: tuple[str, ...] = ("residuals",)

    def __init__(self, inner: Compressor, sizes: Mapping[str, int], *, decay: float = 1.0) -> None:
        self.surround(inner)
        self.sizes, self.decay = dict(sizes), decay
        self.memories: dict[int, Memory] = {}  # by worker
        self._before: list[tuple[Tensor, Tensor]] = []  # memory behind messages that may be undone, and what it was
        self.may_undo = False

    def surround(self, inner: Compressor) -> None:
        """Put the memory around this method from now on."""
        self.inner = inner
        self.shaped, self.exact_bytes = inner.shaped, inner.exact_bytes

    @property
    def method(self) -> Compressor:
        return self.inner.method

    def place(self, key: Key, vector: Tensor) -> dict[str, Tensor]:
        """The memory of this vector by kind: a view of a piece of its parameter's memory, which starts at zero."""
        name, first = self._parsed(key.parameter)
        if name not in self.sizes:
            return {kind: torch.zeros(vector.numel(), dtype=torch.float32, device=vector.device) for kind in self.kinds}
        memory = self.memories.setdefault(key.worker, {kind: {} for kind in self.kinds})
        for kind in self.kinds:
            if name not in memory[kind]:
                memory[kind][name] = torch.zeros(self.sizes[name], dtype=torch.float32, device=vector.device)
        return {kind: memory[kind][name][first : first + vector.numel()] for kind in self.kinds}

    def _parsed(self, name: str) -> tuple[str, int]:
        """The name of a vector and the first coordinate, from the name of the vector or of a piece of it."""
        place = None if name in self.sizes else _PLACE.fullmatch(name)
        return (place["name"], int(place["first"] or 0)) if place else (name, 0)

    @contextmanager
    def aside(self, name: str, part: slice) -> Iterator[None]:
        vector, first = self._parsed(name)
        place = slice(first + part.start, first + part.stop)

        def views() -> list[Tensor]:
            every = [of[kind] for of in list(self.memories.values()) for kind in self.kinds]
            return [of_kind[vector][place] for of_kind in every if vector in of_kind]

        before = [(view, view.clone()) for view in views()]
        self._before += before if self.may_undo else []
        for view, _ in before:
            view.zero_()
        try:
            with self.inner.aside(name, part):
                yield
        finally:  # a memory that has begun meanwhile was zero
            for view, was in [*((view, torch.zeros_like(view)) for view in views()), *before]:
                view.copy_(was)

    def _wanted(self, vector: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The vector float32 that should be sent, and what the memory, the residual apart, becomes once it is sent."""
        kept = memory["residuals"].view(vector.shape)
        return vector + (kept if self.decay == 1 else kept * self.decay), {}

    def _masked(self, after: dict[str, Tensor], message: Message) -> None:
        """Mask the sent coordinates in ``after``; nothing to do here, as a residual holds only what was not sent."""

    def owed(self, vector: Tensor, key: Key) -> Owed:
        """The vector that should be sent of a gradient; nothing is remembered before ``keep``."""
        memory = self.place(key, vector)
        return Owed(*self._wanted(vector, memory), memory)

    def keep(self, owed: Owed, sent: Tensor, message: Message | None = None, factor: float = 1.0) -> None:
        """Remember the difference between what was owed and what was sent in ``message``, if any.

        That is ``factor`` times ``sent`` float32[n].  The memory of both may be written to.
        """
        if self.may_undo:
            self._before += [(place, place.clone()) for place in owed.memory.values()]
        if message is not None:
            self._masked(owed.after, message)
        self._remember(owed, sent if factor == 1 else sent.mul_(factor))
        for kind, value in owed.after.items():
            owed.memory[kind].copy_(value)

    def _remember(self, owed: Owed, sent: Tensor) -> None:
        torch.sub(owed.wanted.reshape(-1), sent, out=owed.memory["residuals"])

    def encode(self, vector: Tensor, key: Key) -> Message:
        owed, message, decoded = self._encoded(vector, key)
        wanted = owed.wanted.reshape(-1)
        square = _dot(decoded, decoded)
        factor = _dot(wanted, decoded) / square if square > 0 else 0.0
        factor *= OVERSHOOT if self.inner.overshoots else 1.0
        head = raw(_FACTOR.pack(min(max(factor, 0.0), 1.0)))
        self.keep(owed, decoded, message, unpacked(_FACTOR, head)[0])
        return Message(TAG, vector.numel(), torch.cat([head.to(vector.device), message.to_bytes()]))

    def _encoded(self, vector: Tensor, key: Key) -> tuple[Owed, Message, Tensor]:
        """What is owed of a gradient, the method's own message, and that decoded, float32[n]."""
        owed = self.owed(vector, key)
        return (owed, *self.inner.encode_sum(owed.wanted, None, key)[1:])

    def settle(self, *, undo: bool = False) -> None:
        """Settle the messages since the last call: they have counted, or (undo) were thrown away on all ranks."""
        for place, before in reversed(self._before) if undo else ():
            place.copy_(before)
        self._before = []

    def _decoded(self, message: Message) -> Tensor:
        factor, inner = self._opened(message)
        return self.inner.decode(inner, inner.num_coordinates).mul_(factor)

    def _add(self, message: Message, total: Tensor) -> None:
        factor, inner = self._opened(message)
        self.inner.add_scaled(inner, factor, total)

    def _opened(self, message: Message) -> tuple[float, Message]:
        """The factor and the method's own message; MessageError for damage."""
        message.check_tag(TAG, _FACTOR.size, "a scaled one")
        (factor,) = unpacked(_FACTOR, message.body)
        if not 0.0 <= factor <= 1.0:
            raise MessageError(f"a scale of {factor}: damaged, it lies between 0 and 1")
        inner = parse(message.body[_FACTOR.size :])
        if inner.num_coordinates != message.num_coordinates:
            found = f"{inner.num_coordinates} coordinates inside a message of {message.num_coordinates}"
            raise MessageError(f"{found}: damaged")
        return factor, inner

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + _FACTOR.size + self.inner.message_bytes(num_coordinates)

    def memory(self) -> dict[str, Any]:
        """A copy on the CPU of the memories: their kinds, by worker, kind and parameter, and ``common``."""
        workers = {worker: _copied(memory, torch.device("cpu")) for worker, memory in self.memories.items()}
        return {"kinds": list(self.kinds), "workers": workers, **self.common()}

    def common(self) -> dict[str, dict[str, Tensor]]:
        """A copy of what is remembered of all workers together, alike on all ranks, by kind and parameter."""
        return {}

    def load_memory(self, saved: Mapping[str, Any], device: torch.device | None = None) -> None:
        """Continue from what ``memory`` returned; ValueError for other kinds, or parameters of other sizes."""
        for worker, memory in saved["workers"].items():
            if set(memory) != set(self.kinds):
                found = f"of {sorted(memory)}, and here of {sorted(self.kinds)}"
                raise ValueError(f"the memory of worker {worker} is {found}")
            for name, tensor in (item for of_kind in memory.values() for item in of_kind.items()):
                if tensor.dtype != torch.float32 or tensor.shape != (self.sizes.get(name, tensor.numel()),):
                    found = f"{tensor.dtype}{list(tensor.shape)}".removeprefix("torch.")
                    has = f"has {found} of {name!r}, whose coordinates are {self.sizes.get(name)}"
                    raise ValueError(f"the memory of worker {worker} {has}")
        self.memories = {worker: _copied(memory, device) for worker, memory in saved["workers"].items()}

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "memory": self.memory()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        self.load_memory(state["memory"])


def _dot(x: Tensor, y: Tensor) -> float:
    """The scalar product of float32 vectors, in float64 where squares might overflow or vanish."""
    product = float(torch.dot(x, y))
    return product if 1e-16 < abs(product) < 1e36 else float(torch.dot(x.double(), y.double()))


def _copied(memory: Memory, device: torch.device | None = None) -> Memory:
    return {kind: {name: t.to(device, copy=True) for name, t in of_kind.items()} for kind, of_kind in memory.items()}


def keep_fitting(encoders: Sequence[Mapping[str, Any]], sizes: Mapping[str, int]) -> None:
    """Drop the memories of parameters that are gone or have another size from the encoders' states."""
    saved = [memory for own in encoders for memory in own.get("memories", ())]
    of_workers = [of_worker for each in saved for of_worker in each["workers"].values()]
    for memory, kind in [
        *((of_worker, kind) for of_worker in of_workers for kind in of_worker),
        *((each, MEANS) for each in saved if MEANS in each),
    ]:
        of_kind = memory[kind]
        fitting = (name for name, t in of_kind.items() if sizes.get(name.removeprefix("mean/")) == t.numel())
        memory[kind] = {name: of_kind[name] for name in fitting}


class MomentumCorrection(ErrorFeedback):
    """Momentum correction: error feedback whose residual accumulates momentum instead of gradients.

    momentum: m in [0, 1); masking: what was sent leaves the momentum too, where the method says which coordinates it
    sent (``inner.indices(message)``: int64 positions, or None for all).  clip_norm, clip_value: 0 for no clipping;
    num_workers: as many share ``clip_norm``.
    """

    kinds = ("residuals", "momenta")

    def __init__(
        self,
        inner: Compressor,
        sizes: Mapping[str, int],
        *,
        momentum: float,
        nesterov: bool = False,
        masking: bool = True,
        clip_norm: float = 0.0,
        clip_value: float = 0.0,
        num_workers: int = 1,
    ) -> None:
        super().__init__(inner, sizes)
        self.momentum, self.nesterov, self.masking = momentum, nesterov, masking
        self.clip_norm, self.clip_value = clip_norm / num_workers**0.5, clip_value

    def _wanted(self, vector: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        gradient = self._clipped(vector.reshape(-1).to(torch.float32))
        if self.nesterov:
            momentum = (memory["momenta"] + gradient).mul_(self.momentum)
            wanted = memory["residuals"] + momentum + gradient
        else:
            momentum = (memory["momenta"] * self.momentum).add_(gradient)
            wanted = memory["residuals"] + momentum
        return wanted.view(vector.shape), {"momenta": momentum}

    def _clipped(self, gradient: Tensor) -> Tensor:
        if self.clip_value:
            gradient = gradient.clamp(-self.clip_value, self.clip_value)
        if self.clip_norm:
            norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
            gradient = gradient * (self.clip_norm / norm) if norm > self.clip_norm else gradient
        return gradient

    def _masked(self, after: dict[str, Tensor], message: Message) -> None:
        indices = self.inner.indices(message) if self.masking else None
        if indices is not None:
            after["momenta"][indices] = 0.0


class AveragedErrors(ErrorFeedback):
    """LoCo: error feedback whose residual is a moving average of what messages left out.

    weight: of the newest error, in (0, 1].  reset_every: the residual is zero before every step, by the key, that is a
    multiple of it; 0 for never.
    """

    def __init__(self, inner: Compressor, sizes: Mapping[str, int], *, weight: float, reset_every: int = 0) -> None:
        super().__init__(inner, sizes)
        self.weight, self.reset_every = weight, reset_every

    def encode(self, vector: Tensor, key: Key) -> Message:
        if self.reset_every and key.step % self.reset_every == 0:
            for kept in self.place(key, vector).values():
                kept.zero_()
        return super().encode(vector, key)

    def _encoded(self, vector: Tensor, key: Key) -> tuple[Owed, Message, Tensor]:
        memory = self.place(key, vector)
        wanted, message, decoded = self.inner.encode_sum(vector, memory["residuals"], key)
        return Owed(wanted, {}, memory), message, decoded

    def keep(self, owed: Owed, sent: Tensor, message: Message | None = None, factor: float = 1.0) -> None:
        kept, wanted = owed.memory["residuals"], owed.wanted.reshape(-1)
        if not all(in_cpp(each, contiguous=True) for each in (kept, wanted, sent)):
            super().keep(owed, sent, message, factor)
            return
        assert all(each.dtype == torch.float32 and each.numel() == kept.numel() for each in (kept, wanted, sent))
        how = (factor, self.weight, kept.data_ptr(), kept.numel(), torch.get_num_threads())
        floats.average_errors(wanted.data_ptr(), sent.data_ptr(), *how)
        if self.may_undo:
            self._before.append((kept, wanted))

    def _remember(self, owed: Owed, sent: Tensor) -> None:
        owed.memory["residuals"].lerp_(owed.wanted.reshape(-1).sub_(sent), self.weight)


class Scaled(ErrorFeedback):
    """A compressor whose messages have their factor, and after which nothing is remembered."""

    kinds = ()

    def owed(self, vector: Tensor, key: Key) -> Owed:
        del key
        return Owed(vector, {}, {})

    def keep(self, owed: Owed, sent: Tensor, message: Message | None = None, factor: float = 1.0) -> None:
        del owed, sent, message, factor


class CompressedDifferences(ErrorFeedback):
    """EF21: a message holds the difference between the gradient and the worker's estimate of it.

    estimates: g_i, by worker; means: of all workers' estimates, by parameter, alike on all ranks.
    """

    kinds = ("estimates",)

    def __init__(self, inner: Compressor, sizes: Mapping[str, int]) -> None:
        super().__init__(inner, sizes)
        self.means: dict[str, Tensor] = {}

    def _wanted(self, vector: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return vector - memory["estimates"].view(vector.shape), {}

    def _remember(self, owed: Owed, sent: Tensor) -> None:
        owed.memory["estimates"].add_(sent)

    def complete(self, name: str, mean: Tensor, unused: Sequence[slice] = ()) -> None:
        """Turn the mean of the differences of a vector, or of a piece of one, float32[n], into that of estimates.

        unused: the parts whose estimates have stayed as they were.
        """
        kept = self.means.setdefault(name, torch.zeros_like(mean))
        if self.may_undo:
            self._before.append((kept, kept.clone()))
        for part in unused:
            mean[part] = -0.0  # x - 0 is x, bit for bit
        kept.copy_(mean.add_(kept))

    def common(self) -> dict[str, dict[str, Tensor]]:
        return {MEANS: {name: mean.to("cpu", copy=True) for name, mean in self.means.items()}}

    def load_memory(self, saved: Mapping[str, Any], device: torch.device | None = None) -> None:
        super().load_memory(saved, device)
        self.means = {name: mean.to(device, copy=True) for name, mean in saved[MEANS].items()}
