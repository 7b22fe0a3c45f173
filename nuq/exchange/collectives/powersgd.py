"""The collective of PowerSGD: it averages the workers' factors instead of their messages.

Vogels et al., NeurIPS 2019, algorithms 1 and 2.

With M_i the matrix that worker i owes (gradient plus residual) and Q the same on all ranks, two rounds of means::

    P = orthonormal(mean of M_i Q)
    Q = mean of M_i^T P
    out = P Q^T = P P^T (mean of M_i);   residual_i = M_i - out;   Q is where the next step begins

Both means are exact ones of short vectors, all matrices' factors one after another, by a collective of
``nuq.exchange.collectives``: gather, or two stages, with which one rank sends about 2 (M - 1) / M times the
factors' bytes, however many workers there are.  As decoding and adding go in worker order, both give the same bits, on
all ranks and in the simulation.  What travels whole rides along in the first round.

Residuals are against the mean, as in the paper's code, so that they take in what workers differ by, whose sum is zero;
what travels whole leaves none.  Parts of other methods (``nuq.settings.layers``) go by a collective of their own
before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nuq.compressors.casts import fp16
from nuq.compressors.feedback import ErrorFeedback, Owed
from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.powersgd import PowerSGD
from nuq.errors import NonFiniteError
from nuq.exchange.collectives.collective import PROBE, Collective, ExchangeStats, Vectors, WorkerPlacement
from nuq.exchange.collectives.gather import Gather
from nuq.exchange.collectives.two_stage import TwoStage
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec, RemoteNonFinite, check_mean
from nuq.exchange.transport import Transport
from nuq.kernels.low_rank import left_product, num_rows, orthonormal, outer_product, right_product, start, started_again
from nuq.kernels.spec import Key
from nuq.settings.baselines import FP16

Debts = Mapping[int, Mapping[int, Owed]]  # by worker and number of the part


@dataclass(frozen=True)
class Encoder:
    """A method that uses this collective: its settings and starts, and the workers' memory, if there is one."""

    method: PowerSGD
    memory: ErrorFeedback | None


@dataclass
class _Matrix:
    """The matrix of segment ``number``, with its factors. columns 0: it travels whole, and ``left`` is its mean."""

    number: int
    part: Segment
    encoder: Encoder | None  # None: in full precision, without a memory
    columns: int
    left: Tensor
    right: Tensor

    @property
    def place(self) -> slice:
        return self.part.place

    @property
    def iterations(self) -> int:
        return self.encoder.method.settings.iterations if self.encoder and self.columns else 0

    @property
    def half(self) -> bool:
        """Whether the matrix's numbers travel in half precision."""
        return bool(self.columns and self.encoder and self.encoder.method.half)

    def length(self, side: str) -> int:
        """The count of numbers that one round sends."""
        if not self.columns:
            return self.part.size
        return self.right.numel() if side == "right" else self.right.shape[0] * num_rows(self.part.size, self.columns)

    def factor(self, wanted: Tensor, side: str) -> Tensor:
        """The share of one worker in the mean of a factor, as a flat vector."""
        if not self.columns:
            return wanted
        if side == "left":
            return left_product(wanted, self.columns, self.right).reshape(-1)
        return right_product(wanted, self.columns, self.left).reshape(-1)

    def take(self, mean: Tensor, side: str) -> None:
        """Set a factor from the workers' mean."""
        if not self.columns:
            self.left = mean
        elif side == "left":
            self.left = orthonormal(mean.view(self.right.shape[0], -1))
        else:
            self.right = mean.view(self.right.shape)


@dataclass
class Power(Collective):
    """The collective of PowerSGD, with the collectives of the factors and of all other parts.

    encoders: by the number that ``Segment.encoder`` names. two_stage: how the factors travel. rest: the collective of
    all other parts.
    """

    transport: Transport
    placement: WorkerPlacement
    encoders: Mapping[int, Encoder]
    two_stage: bool
    rest: Collective | None = None
    stats: ExchangeStats = field(default_factory=ExchangeStats)

    def __post_init__(self) -> None:
        self._layouts: dict[tuple[int, int], FlatLayout] = {}  # of factors, by how many are exact and how many halves
        self._bits: Counter[str] = Counter()  # of all factors so far, by vector
        self._coordinates: Counter[str] = Counter()
        codec = PayloadCodec(FullPrecision(), fp16(FP16()))
        self._inner: Collective = Gather(self.transport, self.placement, codec, self.stats)
        if self.two_stage:
            self._inner = TwoStage(self.transport, self.placement, codec, codec, self.stats)

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        others = layout.chosen(lambda segment: not segment.exact and segment.encoder not in self.encoders)
        means = self._mean_of_others(vectors, others, key, out.device)
        with self.stats.time("encode"):
            ours = [
                self._begun(number, part, key, out.device)
                for number, part in enumerate(layout.segments)
                if part.exact or part.encoder in self.encoders
            ]
            debts = {w: self._owed(ours, vector, replace(key, worker=w)) for w, vector in vectors.items()}
        for matrix in ours:
            self._coordinates[matrix.part.name] += matrix.part.size
        for number in range(max((matrix.iterations for matrix in ours), default=0) or 1):
            still = [matrix for matrix in ours if number < matrix.iterations]
            for matrix in still if number else ():
                matrix.right = orthonormal(matrix.right)
            self._round(still if number else ours, debts, layout, key, "left")
            self._round(still, debts, layout, key, "right")
        with self.stats.time("decode"):
            for part, mean in means:
                out[part.place] = mean
            for matrix in ours:
                if matrix.columns:
                    outer_product(matrix.left, matrix.right, out[matrix.place])
                else:
                    out[matrix.place] = matrix.left
            check_mean(out, layout)  # before anything is remembered of it
            for matrix in ours:
                self._remember(matrix, debts, key, out[matrix.place])

    def bits_by_vector(self) -> dict[str, float]:
        return {name: self._bits[name] / count for name, count in self._coordinates.items()}

    def _mean_of_others(
        self, vectors: Vectors, others: FlatLayout, key: Key, device: torch.device
    ) -> list[tuple[Segment, Tensor]]:
        """The mean of the other methods' parts, by the other collective, one part after another."""
        if not others.segments:
            return []
        assert self.rest is not None
        packed = {
            worker: torch.cat([vector[part.place] for part in others.segments]) for worker, vector in vectors.items()
        }
        mean = torch.empty(others.num_coordinates, dtype=torch.float32, device=device)
        self.rest.mean(packed, others.packed, key, mean)
        return list(zip(others.segments, mean.split([part.size for part in others.segments]), strict=True))

    def _begun(self, number: int, part: Segment, key: Key, device: torch.device) -> _Matrix:
        """The matrices, which begin with the last step's right factor or a random one: the same on all ranks."""
        nothing = torch.empty(0, dtype=torch.float32, device=device)
        encoder = None if part.exact else self.encoders[part.encoder]
        shape = part.shape if part.shape is not None and part.first < 0 else (part.size,)
        columns = encoder.method.columns(shape, len(part.shape or (1, 1))) if encoder else 0
        if encoder is None or not columns:
            return _Matrix(number, part, encoder, 0, nothing, nothing)
        method, common = encoder.method, replace(key, worker=0).of(part.key_name)
        last = method.starts.get(part.key_name) if method.settings.warm_start else None
        if last is not None and last.shape == (method.rank, columns):  # else of a parameter that has another shape now
            right = started_again(last.to(device), common)
        else:
            right = start(columns, method.rank, common, device)
        return _Matrix(number, part, encoder, columns, nothing, right)

    def _owed(self, ours: Sequence[_Matrix], vector: Tensor, key: Key) -> dict[int, Owed]:
        """The debt of a worker in every part: what it wants sent, and how to remember the rest."""
        found: dict[int, Owed] = {}
        for matrix in ours:
            memory, piece = matrix.encoder.memory if matrix.encoder else None, vector[matrix.place]
            owed = memory.owed(piece, key.of(matrix.part.key_name)) if memory else None
            found[matrix.number] = owed or Owed(piece.to(torch.float32), {}, {})
        return found

    def _round(self, matrices: Sequence[_Matrix], debts: Debts, layout: FlatLayout, key: Key, side: str) -> None:
        """The workers' mean of one factor of every matrix; RemoteNonFinite, on all ranks, where one's is not finite."""
        matrices = sorted(matrices, key=lambda matrix: matrix.half)
        lengths = [matrix.length(side) for matrix in matrices]
        halves = sum(length for matrix, length in zip(matrices, lengths, strict=True) if matrix.half)
        exact = sum(lengths) - halves
        if not exact + halves:
            return
        for matrix, length in zip(matrices, lengths, strict=True):
            self._bits[matrix.part.name] += length * (16 if matrix.half else 32)
        if (exact, halves) not in self._layouts:
            both = Segment("factors", 0, exact), Segment("factors", exact, halves, encoder=1)
            self._layouts[exact, halves] = FlatLayout(tuple(part for part in both if part.size))
        with self.stats.time("encode"):
            made = {
                worker: torch.cat([matrix.factor(owed[matrix.number].wanted, side) for matrix in matrices])
                for worker, owed in debts.items()
            }
            mean = torch.empty(exact + halves, device=next(iter(made.values())).device, dtype=torch.float32)
        try:
            self._inner.mean(made, self._layouts[exact, halves], key, mean)
        except RemoteNonFinite as marked:  # alike on all ranks; whose part it is only the worker's own rank knows
            numbers = [-1]
            if marked.worker in made:
                pieces = zip(matrices, made[marked.worker].split(lengths), strict=True)
                bad = [matrix.number for matrix, piece in pieces if not bool(torch.isfinite(piece).all())]
                numbers = bad or numbers
            told = [row[0] for row in self.transport.numbers([min(numbers)], "control")]
            raise RemoteNonFinite(marked.worker, max(0, *told, -1), layout.segments) from marked
        except NonFiniteError as error:  # of finite factors: the same bits on all ranks
            pieces = zip(matrices, mean.split(lengths), strict=True)
            bad = next((matrix.part.name for matrix, piece in pieces if not bool(torch.isfinite(piece).all())), "?")
            raise NonFiniteError(f"the mean factor of {bad!r} overflows float32") from error
        with self.stats.time("decode"):
            for matrix, piece in zip(matrices, mean.split(lengths), strict=True):
                matrix.take(piece, side)

    @staticmethod
    def _remember(matrix: _Matrix, debts: Debts, key: Key, mean: Tensor) -> None:
        """Remember what was not sent, and where the next step starts."""
        if matrix.encoder is None:
            return
        method, memory = matrix.encoder.method, matrix.encoder.memory
        if matrix.columns and method.settings.warm_start and key.parameter != PROBE:
            method.starts[matrix.part.key_name] = matrix.right.clone()
        if memory is not None:
            for owed in debts.values():
                mine = owed[matrix.number]
                memory.keep(mine, mean if matrix.columns else mine.wanted.reshape(-1))
