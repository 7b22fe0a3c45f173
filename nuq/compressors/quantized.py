"""The QSGD .. ALQ family as data: a level set, a norm, and (for some methods) a rule that updates the levels.

Four options compose with every member: ``rotation`` (a Hadamard rotation before, its inverse after), ``coding``
(entropy coding of the codes), correlated ``rounding`` (of the workers whose mean is wanted) and, on equally spaced
levels in its place, subtractive ``dither``.  ``nuq.compressors.body`` lays out the messages; levels that are not
equally spaced travel with every message, so a receiver needs nothing else to decode it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq.compressors.body import CONTEXT_BITS, Layout
from nuq.compressors.compressor import MOST, InPlace, Write, careful
from nuq.compressors.frame import Frame, PieceError, Pieces
from nuq.compressors.message import HEADER_BYTES, Message, largest
from nuq.kernels import bit_packing, operators, reference, spec
from nuq.kernels import pieces as kernels
from nuq.kernels.pieces import Format
from nuq.kernels.spec import Among, Key
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, mean_levels, update_rules
from nuq.levels.lattice import step_of_rate
from nuq.levels.level_sets import Levels
from nuq.levels.truncated_normals import Distribution, TruncNorm
from nuq.settings.quantizers import AMQ, ECDQ, NUQSGD, QSGD, TRN, Adaptive, Bucketed, Optimal

TAG = b"LVLS"
ROTATION_BLOCK = 1024  # coordinates: what stays in the first cache, and is mixed well enough for a normal distribution
_NORMAL_QUANTILE_REACH = 0.03  # largest coordinate / (64 q) of some thousand normal ones
Update = Callable[[Distribution, float | None], update_rules.Fitted]  # the float: the multiplier of the update before


class Quantizer(InPlace):
    """Stochastic rounding of bucket-normalised coordinates to fixed levels.  Unbiased unless it clips.

    settings: bucket size, rotation and coding; dither where they have it.  uniform: the levels are equally spaced.
    multiple: of the rms norm (``nuq.kernels.operators``, step 2).  multiplier: the p of exponential levels, where the
    levels have one.  rate: bits of a coded normal coordinate, where they are known.
    """

    def __init__(
        self,
        levels: Levels,
        settings: Bucketed,
        norm: str,
        *,
        uniform: bool = False,
        multiple: float = 0.0,
        clip_sigma: float = 0.0,
        multiplier: float | None = None,
        rate: float | None = None,
    ) -> None:
        spec.check_bucket_size(settings.bucket_size)
        self.rate = rate
        self.bucket_size = settings.bucket_size
        self.norm = norm
        self.multiple = multiple
        self.uniform = uniform
        self.clip_sigma = clip_sigma
        self.dither = getattr(settings, "dither", "none") == "subtractive"
        self.correlated = settings.rounding == "correlated" and not self.dither
        self.coder = settings.coding
        self.exact_bytes = self.coder == "packed"
        self.block = ROTATION_BLOCK if settings.rotation == "hadamard" else 1
        self.set_levels(levels, multiplier)

    def set_levels(self, levels: Levels, multiplier: float | None = None) -> None:
        if not isinstance(levels, Levels):
            rule = "must be nuq.levels.level_sets.Levels, which checks them: Levels(values)"
            raise ValueError(f"levels={levels!r}: {rule}")
        self.levels = levels
        self.multiplier = multiplier
        self._table = torch.tensor(levels.values, dtype=torch.float32)
        self._format = self._format_of_pieces()

    def _layout(self, num_coordinates: int, words: spec.Words = (0, 0)) -> Layout:
        sizes = (num_coordinates, self.bucket_size, self.levels.num_levels)
        switches = (self.uniform, spec.scales_per_bucket(self.norm) == 2, self.dither)
        return Layout(*sizes, *switches, self.coder, self.block, words)

    def rotated(self, vector: Tensor, key: Key) -> Tensor:
        """The vector that is cut into buckets: the gradient or its rotation, clipped where the method clips."""
        if self.block > 1:
            vector = vector.to(torch.float32, copy=True)
            operators.hadamard_(vector, self.block, spec.rotation_words(key.words()))
        return clip(vector, self.bucket_size, self.clip_sigma) if self.clip_sigma else vector.contiguous()

    def encode(self, vector: Tensor, key: Key) -> Message:
        key, among = key.together(self.correlated)
        layout = self._layout(vector.numel(), key.words())
        vector = self.rotated(vector, key)
        if self.coder == "packed":
            message = Message.room_for(TAG, vector.numel(), layout.body_bytes(), vector.device)
            self._write(vector, key, among, layout, message.body, message.body[layout.codes_at :])
            return message
        code_bytes = bit_packing.packed_bytes(vector.numel(), layout.packing)
        codes = torch.empty(code_bytes, dtype=torch.uint8, device=vector.device)
        before = torch.empty(layout.codes_at, dtype=torch.uint8, device=vector.device)
        self._write(vector, key, among, layout, before, codes)
        coded = layout.coded(codes)
        message = Message.room_for(TAG, vector.numel(), layout.codes_at + coded.numel(), vector.device)
        message.body[: layout.codes_at] = before
        message.body[layout.codes_at :] = coded
        return message

    def _write(self, vector: Tensor, key: Key, among: Among, layout: Layout, body: Tensor, codes: Tensor) -> None:
        """Write everything before the codes into ``body``, and the codes into ``codes``."""
        body[: layout.levels_at] = layout.head()
        scales = body[layout.scales_at : layout.codes_at].view(torch.float32)
        how: dict[str, Any] = {"bucket_size": self.bucket_size, "packing": layout.packing, "key": key, "among": among}
        how |= {"norm": self.norm, "multiple": self.multiple}
        levels = layout.num_levels if self.uniform else self._table.to(vector.device)
        if isinstance(levels, Tensor):
            body[layout.levels_at : layout.scales_at] = levels.view(torch.uint8)
        operators.encode_(vector, levels, scales, codes, **how)

    def _opened(self, message: Message) -> Write:
        layout, body = Layout.read(message, TAG), message.body
        scales, levels = layout.scales(body), layout.levels(body)
        how: dict[str, Any] = {"bucket_size": layout.bucket_size, "packing": layout.packing}
        dither = layout.words if layout.dither else None
        write = partial(operators.decode_, layout.codes(body), scales, levels, dither=dither, **how)
        if layout.block > 1:
            write = partial(_write_rotated, write, layout)
        reach = layout.block**0.5 * (2 if layout.dither else 1)
        return write if reach * largest(scales) < MOST else careful(write)

    def _together(self, *tensors: Tensor) -> bool:
        """Whether pieces go in one call: without entropy coding, rotation, clipping and dither, on the CPU."""
        plain = self.coder == "packed" and self.block == 1 and not self.clip_sigma and not self.dither
        return plain and kernels.together(*tensors)

    def _format_of_pieces(self) -> Format:
        layout = self._layout(0)
        head = layout.head()
        levels = layout.levels(head) if self.uniform else self._table
        how = (layout.packing, levels, not self.uniform, bytes(head.numpy()))
        return Format(self.bucket_size, self.norm, *how, self.multiple)

    def encode_pieces(self, vector: Tensor, pieces: Pieces, key: Key, frame: Frame) -> None:
        if not self._together(vector, frame.data):
            super().encode_pieces(vector, pieces, key, frame)
            return
        bodies, ends = frame.starts[pieces.numbers], frame.ends[pieces.numbers]
        key, among = key.together(self.correlated)
        places = (pieces.starts, pieces.sizes, pieces.words(key), among, frame.data, bodies, ends)
        bad = kernels.encode_(vector, *places, self._format)
        if bad >= 0:
            number = int(pieces.numbers[bad])
            raise PieceError(number, f"the {self.norm} norm of a bucket is not finite or overflows float32")
        frame.tag(pieces.numbers, TAG)

    def add_pieces(self, frame: Frame, pieces: Pieces, total: Tensor) -> None:
        if not self._together(frame.data, total) or not frame.tagged(pieces.numbers, TAG):
            super().add_pieces(frame, pieces, total)
            return
        places = [frame.starts[pieces.numbers], frame.ends[pieces.numbers], pieces.starts, pieces.sizes]
        done = 0
        while done < len(pieces.numbers):
            bodies, ends, starts, sizes = (each[done:] for each in places)
            left_out = kernels.add_(frame.data, bodies, ends, total, starts, sizes, self._format)
            if left_out < 0:
                return
            done += left_out + 1
            start, size = int(starts[left_out]), int(sizes[left_out])
            self.add(frame.message(int(pieces.numbers[done - 1])), total[start : start + size])

    def encode_sum(self, vector: Tensor, kept: Tensor | None, key: Key) -> tuple[Tensor, Message, Tensor]:
        if vector.dim() == 1 and self._together(vector, *([] if kept is None else [kept])):
            size = vector.numel()
            message = Message.room_for(TAG, size, self._layout(size).body_bytes(), vector.device)
            decoded = torch.empty(size, dtype=torch.float32, device=vector.device)
            wanted = vector if kept is None else torch.empty_like(decoded)
            own, among = key.together(self.correlated)
            if kernels.encode_one(vector, kept, wanted, own.words(), among, message.body, decoded, self._format):
                return wanted, message, decoded
        return super().encode_sum(vector, kept, key)

    def add_scaled(self, message: Message, factor: float, total: Tensor) -> None:
        body = message.body
        if message.tag == TAG and body.data_ptr() % 4 == 0 and self._together(body, total):
            message.check_fits(total)
            if kernels.add_one(body, total, self._format, factor):
                return
        super().add_scaled(message, factor, total)

    def message_bytes(self, num_coordinates: int) -> int:
        """The length of a message; with entropy coding, its largest length."""
        return HEADER_BYTES + self._layout(num_coordinates).body_bytes()

    def usual_bytes(self, num_coordinates: int) -> int:
        """The length of a message of normal coordinates, where it is known, else ``message_bytes``."""
        if self.rate is None:
            return self.message_bytes(num_coordinates)
        return HEADER_BYTES + round(self.rate * num_coordinates / 8)

    def state_dict(self) -> dict[str, Any]:
        return {"levels": torch.tensor(self.levels.values, dtype=torch.float64), "multiplier": self.multiplier}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.set_levels(Levels(state["levels"].cpu().numpy()), state["multiplier"])


def _write_rotated(write: Write, layout: Layout, total: Tensor, *, accumulate: bool) -> None:
    """Write or add the decoded vector, rotated back."""
    rotated = torch.empty_like(total) if accumulate else total
    write(rotated, accumulate=False)
    operators.hadamard_(rotated, layout.block, spec.rotation_words(layout.words), inverse=True)
    if accumulate:
        total += rotated


class AdaptiveQuantizer(Quantizer):
    """A quantizer whose levels follow the gradients: ``update(statistics)`` fits a distribution and solves for levels.

    Before the first update the levels are those of a normal distribution with the spread that any bucket of this size
    has: sigma = 1/sqrt(bucket size) after division by the L2 norm, 1/sqrt(2 ln(bucket size)) after Linf and quantile; a
    vector shorter than a bucket gets those of its own length.  Real gradients are no normal distribution, so that the
    first update had better be at once (``update_at`` with 0).  (The original starts from uniform or exponential levels,
    whose variance is tens to hundreds of times larger until step 100.)
    """

    def __init__(self, settings: Adaptive, solve: Update) -> None:
        self.settings = settings
        self._solve = solve
        self.gap: float | None = None  # Psi / Psi of the optimum - 1 under the distribution of the last update
        self._short: dict[int, Quantizer] = {}  # what shorter vectors start with, by their length
        levels, multiplier = self._start(settings.bucket_size)
        super().__init__(levels, settings, settings.norm, multiplier=multiplier)

    @property
    def fitted(self) -> bool:
        """Whether the levels have been updated."""
        return self.gap is not None

    def _start(self, size: int) -> tuple[Levels, float | None]:
        """Levels, and their multiplier, for normal coordinates in buckets of this size."""
        norm = self.settings.norm
        spread = size**-0.5 if norm == "l2" else (2 * np.log(max(size, 2))) ** -0.5
        fitted = self._solve(TruncNorm(0.0, min(spread, 0.5)), None)
        return level_sets.stretched(fitted.levels, _NORMAL_QUANTILE_REACH if norm == "quantile" else 1.0), fitted.p

    def encode(self, vector: Tensor, key: Key) -> Message:
        size = vector.numel()
        if self.fitted or not 0 < size < self.bucket_size:
            return super().encode(vector, key)
        if size not in self._short:
            levels, multiplier = self._start(size)
            self._short[size] = Quantizer(levels, self.settings, self.norm, multiplier=multiplier)
        return self._short[size].encode(vector, key)

    def _together(self, *tensors: Tensor) -> bool:
        return self.fitted and super()._together(*tensors)  # until then shorter vectors have levels of their own

    def observe(self, vector: Tensor, key: Key, statistics: Statistics) -> None:
        """Add one vector, as it is cut into buckets, to the statistics behind the next update."""
        how: dict[str, Any] = {"moments": self.settings.fit != "histogram", "signs": replace(key, worker=0).words()}
        statistics.add([self.rotated(vector, key)], self.bucket_size, self.norm, **how)

    def observed(self, pieces: Iterable[tuple[Tensor, Key]]) -> Statistics:
        """The statistics of vectors, each with the key of its samples."""
        statistics = Statistics.empty(self.settings.num_components)
        for piece, key in pieces:
            self.observe(piece, key, statistics)
        return statistics

    def update(self, statistics: Statistics) -> None:
        """Update the levels; they stay where every sampled gradient was zero."""
        if statistics.empty_of(self.settings.fit):
            return
        reach = statistics.reach
        distribution = statistics.fit(self.settings.fit, getattr(self.settings, "weights", "norm2"), reach=reach)
        fitted = self._solve(distribution, None if self.gap is None else self.multiplier)
        if self.settings.objective == "mean":
            together = {"workers": statistics.workers, "agreement": statistics.agreement}
            fitted = mean_levels.refit(fitted, distribution, symmetric=self.settings.symmetric, **together)
        self.gap = update_rules.gap(fitted, distribution, symmetric=self.settings.symmetric)
        self.set_levels(level_sets.stretched(fitted.levels, reach), fitted.p)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gap": self.gap}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.gap = state["gap"]


def clip(vector: Tensor, bucket_size: int, num_sigmas: float) -> Tensor:
    """Clamp every coordinate to num_sigmas standard deviations of its bucket (TernGrad, Section 3.2): biased."""
    if not vector.numel():
        return vector
    buckets = reference.bucketed(vector, bucket_size)
    lengths = reference.bucket_lengths(vector.numel(), bucket_size, vector.device)[:, None]
    wide = buckets.to(torch.float64)
    mean = reference.tree_sum(wide)[:, None] / lengths
    sigma = (reference.tree_sum(wide.square())[:, None] / lengths - mean.square()).clamp_min(0.0).sqrt()
    limit = (num_sigmas * sigma).to(torch.float32)
    return torch.clamp(buckets, -limit, limit).reshape(-1)[: vector.numel()]


def _uniform(settings: QSGD, norm: str) -> Quantizer:
    levels_of = level_sets.uniform if settings.form == "signed" else level_sets.uniform_magnitude
    return Quantizer(levels_of(settings.bits), settings, norm, uniform=True)


def qsgd(settings: QSGD) -> Quantizer:
    """QSGD: uniform levels, L2 norm; ``form=magnitude`` is its own set with a zero, ``signed`` that of ALQ's code.

    Alistarh et al., NeurIPS 2017, arXiv 1610.02132.
    """
    return _uniform(settings, "l2")


def qsgdinf(settings: QSGD) -> Quantizer:
    """QSGD-inf: uniform levels, Linf norm (the variant that QSGD's authors run).

    Alistarh et al., NeurIPS 2017, arXiv 1610.02132.
    """
    return _uniform(settings, "linf")


def ecdq(settings: ECDQ) -> Quantizer:
    """Entropy-coded dithered quantization: a lattice whose step is a multiple of the bucket's rms.

    The lattice is as wide as it has to be.  511 points around zero; the step follows from the rate
    (``nuq.levels.lattice``) and grows where a bucket's largest coordinate lies beyond them.  With subtractive dither
    the error is uniform, of variance step^2 / 12, whatever the gradient (Ziv, IEEE Trans. IT 1985;
    Zamir and Feder, 1992).
    """
    lattice = level_sets.equally_spaced(511)
    known_bits = CONTEXT_BITS if settings.dither == "subtractive" and settings.coding == "rans" else 0
    rate = None if settings.coding == "packed" else settings.bits
    multiple = 255 * step_of_rate(settings.bits, known_bits)
    return Quantizer(lattice, settings, "rms", uniform=True, multiple=multiple, rate=rate)


def nuqsgd(settings: NUQSGD) -> Quantizer:
    """NUQSGD: levels +-p^j, L2 norm. As in ALQ's code there is no zero level; NUQSGD's paper has one.

    Ramezani-Kebrya et al., 2019, arXiv 1908.06077.
    """
    return Quantizer(level_sets.exponential(settings.bits, settings.p), settings, "l2", multiplier=settings.p)


def trn(settings: TRN) -> Quantizer:
    """TernGrad: levels -1, 0, 1, Linf norm per bucket (the paper: per layer). Clipping is off unless asked for.

    Wen et al., NeurIPS 2017, arXiv 1705.07878.
    """
    return Quantizer(level_sets.ternary(), settings, "linf", uniform=True, clip_sigma=settings.clip_sigma)


def _descending(settings: Adaptive, rule: Callable[..., update_rules.Fitted]) -> AdaptiveQuantizer:
    how: dict[str, Any] = {"symmetric": settings.symmetric, "solver": settings.solver}
    return AdaptiveQuantizer(settings, lambda distribution, _: rule(distribution, settings.bits, **how))


def alq(settings: Adaptive) -> AdaptiveQuantizer:
    """ALQ and ALQ-N: coordinate descent on the levels.

    ``solver=exact`` descends to convergence, the dynamic program among its starts; ``paper`` takes 30 sweeps, as
    published.  Faghri et al., NeurIPS 2020, arXiv 2010.12460.
    """
    return _descending(settings, update_rules.alq)


def alq_g(settings: Adaptive) -> AdaptiveQuantizer:
    """ALQ-G and ALQ-GN: projected gradient descent on the levels.

    Faghri et al., NeurIPS 2020, arXiv 2010.12460.
    """
    return _descending(settings, update_rules.alq_gradient)


def optimal(settings: Optimal) -> AdaptiveQuantizer:
    """The globally optimal levels, of any number (QUIVER, NeurIPS 2024), to which other methods' ``gap`` refers."""
    num_levels = settings.num_levels or 2 ** level_sets.check_bits(settings.bits)
    return AdaptiveQuantizer(
        settings, lambda distribution, _: update_rules.optimal(distribution, num_levels, symmetric=settings.symmetric)
    )


def amq(settings: AMQ) -> AdaptiveQuantizer:
    """AMQ and AMQ-N: levels +-p^j, with p learned by gradient descent.

    Faghri et al., NeurIPS 2020, arXiv 2010.12460, Section 3.2.
    """
    how: dict[str, Any] = {"solver": settings.solver, "norm_less": settings.fit == "normal"}
    return AdaptiveQuantizer(
        settings, lambda distribution, previous: update_rules.amq(distribution, settings.bits, previous=previous, **how)
    )
