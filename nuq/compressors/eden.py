r"""EDEN and, at one bit, DRIVE: random rotations, the nearest of few levels, and one scale per bucket.

Vargaftik et al., ICML 2022 (EDEN, arXiv 2108.08842) and NeurIPS 2021 (DRIVE, arXiv 2105.08339).

Per bucket of d coordinates: a random rotation ``y = R x`` makes every coordinate nearly normal, whatever the gradient,
so each goes to the nearest centroid ``q`` of the Lloyd-Max quantizer of N(0, |x|^2 / d); the receiver turns ``S q``
back.  One scale travels:

- ``unbiased``: ``S = |x|^2 / <y, q>``, so that the part along x is exact; the error is then ``D / (1 - D)`` of
  ``|x|^2`` with D the quantizer's distortion: .5708 .1331 .0358 .0096 at 1 .. 4 bits, on any input;
- ``mse``: ``S = <y, q> / |q|^2``, the smallest error, D, but biased.

``levels=uniform`` is EDEN's form for an entropy coder (ICML 2022, Section 4.3): ``q`` is the nearest multiple of a
step, and the step brings normal coordinates to so many bits once they are coded: 1.0824, .5224, .2590 standard
deviations for 2, 3, 4 (``nuq.levels.lattice``).

R is a Hadamard transform after random signs, cheap but not uniform over all rotations.  One of them misses x by about
``c^2 (sum x^6 / |x|^6 - (sum x^4 / |x|^4)^2)`` of ``|x|^2``, c = 1/3 at one bit: nothing for a dense bucket, far too
much for a sparse or a short one.  Two of them are an XOR convolution, which keeps the coordinates of a very sparse
bucket in correlated pairs: some ``(2.4 / d)^2``.  So every bucket is rotated three times, and none is shorter than 128:
cheaper than finding out which buckets need it, and no threshold to choose.  Measured ``T |mean_T - x|^2 / vNMSE`` of T
= 10,000 estimates in a bucket of 128 (1 without bias, +-0.13)::

    rotations                       1 bit: 1      2     3      4 bits: 1      2     3
    2 coordinates, 1 and 1/2           10000    6.0   1.1           9816    4.5   1.1
    3 normal ones, zeros               10000   17.4   1.2           9702    1.3   0.9
    8 normal ones, zeros                 318    1.1   1.2            438    1.1   1.1
    one with half the energy             678    0.9   0.9            1.9    1.2   0.9
    lognormal, sigma = 2                14.5    0.9   1.1            1.2    1.0   1.0
    normal                               2.0    1.0   1.1            1.3    1.0   0.9

Few coordinates that hold nearly all of a bucket leave its values on a lattice, even after three rotations: one
coordinate c on values mostly ``8 |c| / d^1.5`` apart, two or four that are alike on values twice or four times as far
apart.  Beside them the part of a much smaller coordinate is rounded away, or made many times too large.  So such a
bucket is dithered: each value goes to the nearest level after the difference of two uniform numbers, as wide as the
lattice's spacing, is added.  That hides the lattice from the mean, and costs a sixth of the spacing's square.  The
scale is still ``|x|^2 / <y, q>``.  Such a bucket has ``sum x^4 / |x|^4`` above 1/16 and 6/d (fewer than 16 coordinates
count), or above 3/4 of ``max x^2 / |x|^2`` (those that count are alike).  Measured in a bucket of 128, T = 10,000: the
mean of the worst coordinate in standard errors (2.7 +-.4 without bias), and the error over the published one::

                                    worst coordinate         error, in published ones
                                    nearest    dithered      at random     dithered
    bits                            1     4     1     4       1     4       1      4
    1 and .001                     31    44   2.7   3.3    12.5   2.5     .99   1.03
    2 alike and .001               43    27   2.4   2.7    12.5   2.5    1.00   1.10
    4 alike and .001               46    50   2.6   3.2    12.4   2.5    1.00   1.23
    12 alike and .001              19    13   2.3   3.2    12.5   2.5    1.00   1.05
    33 alike and .001               7    11   2.8   2.5    12.5   2.5     .99    .99
    one with half the energy      3.2   2.9   3.2   2.7    12.5   2.5     .99   1.00
    one with 99 %, normal rest    3.0   2.5   3.1   2.6    12.6   2.5    1.00   1.04

In longer buckets the spacing is nothing beside the levels: at 4 bits 4 alike cost 1.07 in 256, 1.02 in 512.

Where the spacing is above 1/sqrt 2 of the levels' least distance, a dither costs more than rounding at random, and the
bucket is rounded so: to equally spaced levels between plus and minus its largest rotated value, or, with
``levels=uniform``, to multiples of the step, which is widened where that value lies beyond the last one.  That is from
5 bits on in a bucket of 128, 6 in 256, 7 in 512, 8 in 1,024; it costs 2 to 2.7 times the error, of a dense bucket with
one such coordinate, too.  With one or two rotations, which leave too few values for a dither, all such buckets are
rounded at random.  ``scale=mse`` is biased anyway and does without either.

The bias that is left: the signs of 8 alike, side by side in a bucket of 128, can make the lattice wider than the
dither: 4 standard errors of a hundredth beside them at T = 1,000,000.  Some dozens of coordinates of few sizes are not
noticed (20 of 1, 40 of 1/2 and one of 1/100: 16 at 3 bits and T = 16,000).

Correlated rounding has no place here: nearest levels draw no random number, and workers could round together under one
rotation alone.  Then the errors of workers whose gradients are alike are alike, too: the mean of 4 errs 1.0 (nothing
in common), 1.1 (half) and 2.6 times (95 %) as much at one bit on normal coordinates, 2.8 to 3.8 times on sparse ones
that are rounded at random.

Differences from the papers: that dither; buckets, where they rotate the whole vector; three rotations (``rotations=1``
is theirs); no more than 511 uniform levels, which at 8 bits cut off what lies beyond 4.1 standard deviations (and D is
a sixth above step^2 / 12); the rest after the last whole bucket is cut into powers of two down to 128, each a bucket
with its own scale, the last one padded with zeros.

Body of a message::

    log2 of the bucket size, bits, coder (+ 16: levels=uniform), rotations: uint8 each
    k0, k1 uint32          of the sender's key: the receiver repeats its signs
    scales float32         one per bucket; negative: rounded at random, the largest level
    codes                  packed (``nuq.kernels.bit_packing``) or entropy coded (``nuq.coding.entropy``)

For n coordinates, a multiple of d, that makes ``28 + 12 + 4 n/d + n b / 8`` bytes, header included.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq.coding import entropy
from nuq.compressors.body import CODINGS, entropy_coded, entropy_decoded
from nuq.compressors.compressor import MOST, Compressor
from nuq.compressors.message import HEADER_BYTES, Message, finite, from_bytes, largest, unpacked
from nuq.errors import MessageError
from nuq.kernels import bit_packing, operators, spec
from nuq.kernels.spec import Key, Words
from nuq.levels import lattice, lloyd_max
from nuq.levels.level_sets import equally_spaced
from nuq.settings.quantizers import DRIVE, EDEN, LEAST_ROTATED

TAG = b"EDEN"
MOST_ROTATIONS = 3
_HEAD = struct.Struct("<BBBBII")
_CODERS = dict(enumerate([(name, False) for name in CODINGS])) | {
    16 + CODINGS.index(name): (name, True) for name in entropy.CODERS
}


@dataclass(frozen=True)
class Layout:
    """The layout of a body of ``num_coordinates``."""

    num_coordinates: int
    bucket_size: int
    bits: int
    coder: str
    rotations: int
    uniform: bool = False
    words: Words = (0, 0)

    @property
    def num_levels(self) -> int:
        return lattice.nearest_points(lattice.step_of_nearest(self.bits)) if self.uniform else 1 << self.bits

    @property
    def reach(self) -> float:
        """The largest of the uniform levels, in standard deviations."""
        return (self.num_levels // 2) * lattice.step_of_nearest(self.bits)

    @property
    def levels(self) -> np.ndarray:
        """The values of the codes, in standard deviations, smallest first: float64[num_levels]."""
        return self.reach * equally_spaced(self.num_levels).values if self.uniform else lloyd_max.centroids(self.bits)

    @property
    def padded(self) -> int:
        """The number of coordinates that are rotated and coded."""
        return -(-self.num_coordinates // LEAST_ROTATED) * LEAST_ROTATED

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """The runs (first coordinate, bucket size, count): the whole buckets, then the powers of two that are left."""
        whole = self.padded // self.bucket_size
        rest = [(start, size, 1) for start, size in spec.hadamard_blocks(self.padded, self.bucket_size)]
        return [(0, self.bucket_size, whole), *rest] if whole else rest

    @property
    def num_scales(self) -> int:
        return sum(count for _, _, count in self.runs)

    @property
    def packing(self) -> int:
        """The packing in which the operators write and read codes: packed, or raw where an entropy coder follows."""
        return self.bits if self.coder == "packed" else bit_packing.raw_packing(self.num_levels)

    @property
    def codes_at(self) -> int:
        return _HEAD.size + 4 * self.num_scales

    def body_bytes(self) -> int:
        """The length of a packed body, or the largest length of an entropy-coded one."""
        if self.coder == "packed":
            return self.codes_at + bit_packing.packed_bytes(self.padded, self.bits)
        return self.codes_at + entropy.encoded_bound(self.padded, self.num_levels)

    def rotation_keys(self) -> list[Words]:
        keys = [spec.rotation_words(self.words)]
        while len(keys) < self.rotations:
            keys.append(spec.rotation_words(keys[-1]))
        return keys

    def head(self) -> bytes:
        """The bytes before the scales."""
        coder = next(number for number, form in _CODERS.items() if form == (self.coder, self.uniform))
        return _HEAD.pack(self.bucket_size.bit_length() - 1, self.bits, coder, self.rotations, *self.words)

    @classmethod
    def read(cls, message: Message) -> Layout:
        """The layout that a message states; MessageError where its body cannot be of this method."""
        body = message.body
        message.check_tag(TAG, _HEAD.size, "of EDEN")
        log_size, bits, coder, rotations, k0, k1 = unpacked(_HEAD, body)
        known = 1 <= bits <= 8 and coder in _CODERS and 1 <= rotations <= MOST_ROTATIONS
        if not known or not LEAST_ROTATED <= 1 << log_size <= 1 << 31:
            raise MessageError(f"bucket size 2^{log_size}, {bits} bits, coder {coder}, {rotations} rotations: damaged")
        name, uniform = _CODERS[coder]
        layout = cls(message.num_coordinates, 1 << log_size, bits, name, rotations, uniform, (k0, k1))
        longest = layout.body_bytes()
        shortest = longest if layout.coder == "packed" else layout.codes_at
        if not shortest <= body.numel() <= longest:
            raise MessageError(f"{body.numel()} bytes where {message.num_coordinates} such coordinates take {longest}")
        return layout

    def codes(self, body: Tensor) -> Tensor:
        """The codes of a body in this layout's ``packing``: uint8 bytes."""
        data = body[self.codes_at :]
        return data if self.coder == "packed" else entropy_decoded(data, self.padded, self.num_levels, self.coder)


class Eden(Compressor):
    """A compressor that sends the nearest centroid of every coordinate of randomly rotated buckets.

    settings: see ``nuq.settings.quantizers.EDEN``, whose ranges hold here too; the bucket size is a power of two.
    """

    LEAST_BUCKETS = 8

    def __init__(self, settings: EDEN | DRIVE) -> None:
        super().__init__(settings)
        size = settings.bucket_size
        if size & (size - 1):
            raise ValueError(f"bucket_size={size}: must be a power of two, since each bucket is rotated as a whole")
        self.bucket_size = size
        self.bits: int = getattr(settings, "bits", 1)
        self.coder = settings.coding
        self.exact_bytes = self.coder == "packed"
        self.rotations = settings.rotations
        self.uniform = getattr(settings, "levels", "lloyd_max") == "uniform"
        self.mse = settings.scale == "mse"
        # the coordinates of an owner: see ``nuq.exchange.mean_error``
        self.least_part = 0 if self.mse else self.LEAST_BUCKETS * size

    def layout(self, num_coordinates: int, words: Words = (0, 0)) -> Layout:
        return Layout(num_coordinates, self.bucket_size, self.bits, self.coder, self.rotations, self.uniform, words)

    def encode(self, vector: Tensor, key: Key) -> Message:
        layout = self.layout(vector.numel(), key.words())
        y = torch.nn.functional.pad(vector.to(torch.float32), (0, layout.padded - vector.numel()))
        y = y.clone() if y.data_ptr() == vector.data_ptr() else y
        runs = [(y[start : start + size * count], size) for start, size, count in layout.runs]
        lattices = [None if self.mse else _lattice(run, size, layout) for run, size in runs]
        for words in layout.rotation_keys():
            operators.hadamard_(y, layout.bucket_size, words)
        codes = torch.empty(bit_packing.packed_bytes(layout.padded, layout.packing), dtype=torch.uint8, device=y.device)
        parts = _parts(layout, codes)
        scales = [
            _quantize(run, size, layout, part) if lattice is None else _unbiased(run, size, layout, part, *lattice)
            for (run, size), part, lattice in zip(runs, parts, lattices, strict=True)
        ]
        if layout.coder != "packed":
            codes = entropy_coded(codes, layout.num_levels, layout.coder).to(y.device)
        return Message.of(TAG, vector.numel(), layout.head(), *scales, codes)

    def _decoded(self, message: Message) -> Tensor:
        layout, body = Layout.read(message), message.body
        scales = finite(from_bytes(body[_HEAD.size : layout.codes_at], torch.float32), "scale")
        parts = _parts(layout, layout.codes(body))
        y = torch.empty(layout.padded, dtype=torch.float32, device=body.device)
        done = 0
        for (start, size, count), part in zip(layout.runs, parts, strict=True):
            _values(part, scales[done : done + count], size, layout, y[start : start + size * count])
            done += count
        for words in reversed(layout.rotation_keys()):
            operators.hadamard_(y, layout.bucket_size, words, inverse=True)
        reach = layout.bucket_size * max(1.0, *layout.levels)  # of the sums inside a rotation
        y = y[: message.num_coordinates]
        return y if reach * largest(scales) < MOST else finite(y, "coordinate")

    def message_bytes(self, num_coordinates: int) -> int:
        """The length of a message; with entropy coding, its largest length."""
        return HEADER_BYTES + self.layout(num_coordinates).body_bytes()

    def usual_bytes(self, num_coordinates: int) -> int:
        """The usual length of a message; uniform levels as of normal coordinates, which rotated ones nearly are."""
        layout = self.layout(num_coordinates)
        coded = layout.codes_at + bit_packing.packed_bytes(layout.padded, self.bits)
        return HEADER_BYTES + (coded if self.uniform else layout.body_bytes())


def _parts(layout: Layout, codes: Tensor) -> list[Tensor]:
    """The bytes of the codes of every run, which is a multiple of 8 codes, so that it ends with a byte."""
    ends = [bit_packing.packed_bytes(start, layout.packing) for start, _, _ in layout.runs] + [codes.numel()]
    return [codes[begin:end] for begin, end in itertools.pairwise(ends)]


def _quantize(y: Tensor, size: int, layout: Layout, codes: Tensor, unbiased_for: Tensor | None = None) -> Tensor:
    """Write the nearest levels of ``y`` into ``codes``; returns the scales of the buckets: float32[y.numel() / size].

    The scales are those of least error, or those that are exact along the vector given: ``y`` before it was dithered.
    """
    # The operator divides by the L2 norm, so N(0, 1/d) is the distribution, and takes the inner levels as thresholds.
    middles = 0.5 * (layout.levels[1:] + layout.levels[:-1]) * size**-0.5
    borders = torch.tensor([-1.0, *middles, 1.0], dtype=torch.float32, device=y.device)
    norms = torch.empty(y.numel() // size, dtype=torch.float32, device=y.device)
    how: dict[str, Any] = {"bucket_size": size, "norm": "l2", "packing": layout.packing, "key": (0, 0)}
    operators.encode_(y, borders, norms, codes, stochastic=False, **how)
    q = torch.empty_like(y)
    _values(codes, torch.ones_like(norms), size, layout, q)
    if unbiased_for is None:
        scale = operators.bucket_dots(y, q, size) / operators.bucket_dots(q, q, size)
    else:
        whole, along = (operators.bucket_dots(unbiased_for, other, size) for other in (unbiased_for, q))
        scale = whole / along
    scale = torch.where(norms > 0, scale, torch.zeros_like(scale)).to(torch.float32)
    spec.check_scales(scale, "l2")
    return scale


def _lattice(x: Tensor, size: int, layout: Layout) -> tuple[Tensor, Tensor]:
    """The buckets whose rotated values lie on a lattice: its spacing where a dither costs less than rounding at random,
    else 0, float32[x.numel() / size]; and where rounding at random does, bool[x.numel() / size].
    """
    largest, norms = (operators.bucket_scales(x, size, norm) for norm in ("linf", "l2"))
    inverse = torch.where(largest > 0, 1 / largest, torch.zeros_like(largest))
    squares = (x.view(-1, size) * inverse[:, None]).square_().view(-1)
    fourth = operators.bucket_dots(squares, squares, size)  # k coordinates that are alike: k
    second = (norms * inverse).to(torch.float64).square()
    # for comparison, fourth / second^2 of d normal coordinates is 3 / d
    few = (fourth > max(1 / 16, 6 / size) * second.square()) | (4 * fourth > 3 * second)
    alike = 1 + (fourth > 1.5).to(torch.float32) + 2 * (fourth > 3).to(torch.float32)
    spacing = largest * alike * (8 * size**-1.5)
    finest = float(np.diff(layout.levels).min()) * size**-0.5
    at_random = few & (spacing > norms * (finest * 2**-0.5))
    if layout.rotations < MOST_ROTATIONS:
        at_random = few  # where few values are to be had, a dither of their spacing is not enough
    return torch.where(few & ~at_random, spacing, torch.zeros_like(spacing)), at_random


def _unbiased(y: Tensor, size: int, layout: Layout, codes: Tensor, spacing: Tensor, at_random: Tensor) -> Tensor:
    """Write the codes of rotated buckets, of which ``_lattice`` has told the rest; returns the scales."""
    dithered = y + _dither(size, spacing, layout) if bool(spacing.any()) else y
    scales = _quantize(dithered, size, layout, codes, y)
    if bool(at_random.any()):
        _round_at_random(y.view(-1, size), at_random, layout, codes, scales)
    return scales


def _dither(size: int, spacing: Tensor, layout: Layout) -> Tensor:
    """The difference of two uniform numbers as wide as the spacing, for each coordinate: float32[buckets * size].

    Neighbours have a number in common, and all buckets the whole row, since each is rotated by signs of its own.
    """
    drawn = operators.leading_bits(2 * size + 2, _own_words(layout), 8, spacing.device)
    uniform = drawn.view(torch.int16).to(torch.float32) * 2.0**-16
    return ((uniform[1:] - uniform[:-1]) * spacing[:, None]).view(-1)


def _own_words(layout: Layout) -> Words:
    """The words behind the random numbers of no rotation."""
    return spec.rotation_words((layout.words[1], layout.words[0]))


def _round_at_random(rows: Tensor, chosen: Tensor, layout: Layout, codes: Tensor, scales: Tensor) -> None:
    """Code the chosen (bool[buckets]) of rows float32[buckets, size] anew, at random: codes and (negative) scales."""
    y, packing = rows[chosen].reshape(-1), layout.packing
    packed = torch.empty(bit_packing.packed_bytes(y.numel(), packing), dtype=torch.uint8, device=y.device)
    largest = torch.empty(int(chosen.sum()), dtype=torch.float32, device=y.device)
    how: dict[str, Any] = {"norm": "rms", "multiple": layout.reach} if layout.uniform else {"norm": "linf"}
    how |= {"bucket_size": rows.shape[1], "packing": packing, "key": _own_words(layout)}
    operators.encode_(y, layout.num_levels, largest, packed, **how)
    codes.view(len(rows), -1)[chosen] = packed.view(len(largest), -1)
    scales[chosen] = -largest


def _values(codes: Tensor, scales: Tensor, size: int, layout: Layout, out: Tensor) -> None:
    """Write scale * level of every coordinate into ``out``."""
    table = torch.tensor(layout.levels, dtype=torch.float32, device=out.device)
    how: dict[str, Any] = {"bucket_size": size, "packing": layout.packing, "accumulate": False}
    operators.decode_(codes, scales, table, out, **how)
    random = scales < 0
    if bool(random.any()):
        levels = torch.tensor(equally_spaced(layout.num_levels).values, dtype=torch.float32, device=out.device)
        part = torch.empty(int(random.sum()) * size, dtype=torch.float32, device=out.device)
        chosen = codes.view(len(scales), -1)[random].reshape(-1)
        operators.decode_(chosen, -scales[random], levels, part, **how)
        out.view(-1, size)[random] = part.view(-1, size)


def eden(settings: EDEN) -> Eden:
    """The EDEN method of 1 to 8 bits: Lloyd-Max centroids, or uniform steps."""
    return Eden(settings)


def drive(settings: DRIVE) -> Eden:
    """The DRIVE method: the sign of every rotated coordinate."""
    return Eden(settings)
