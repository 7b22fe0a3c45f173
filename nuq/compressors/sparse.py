"""Sparse methods: top-k, random-k, two thresholds, and Deep Gradient Compression's choice of coordinates.

Body of a message::

    flags uint8 (1: half precision, 2: keyed indices, 4: two bits), k uint32
    scale float32                                        half precision: a power of two that the values were divided by
    levels float32[4]                                    two bits: what the codes stand for
    k0, k1, bucket size, indices of a whole bucket: uint32 each; keyed: the receiver draws the sender's indices again
    values                                               float32[k], float16[k] or k codes of two bits
    indices                                              ``nuq.coding.index_coding``; nothing if keyed, or if all travel

So k coordinates at random among n take about ``33 + k (4 + (1.5 + log2(n / k)) / 8)`` bytes, header included.  A choice
has no residual: error feedback and momentum correction are wrappers around any method.  Where more than 15 of 16
coordinates travel, the indices are those of the others.

Limit of the speed: the choice is one pass over the gradient (random-k, and DGC's threshold, too), coded indices take
25 to 40 ns each on one core, so that above some 3 % of the coordinates ``indices=auto`` takes longer than the choice;
``bitmap`` takes 4.  So a threshold that an eighth of the coordinates reach (thresholdv) encodes .8 GB/s a core, and one
that nearly all reach (nonzero) .4, the time of finding those that are absent and of writing indices and values to fresh
memory, twice.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from nuq.coding import index_coding
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message, finite, flat, from_bytes
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import bit_packing, selection
from nuq.kernels.selection import Share
from nuq.kernels.spec import Key
from nuq.settings import check
from nuq.settings import sparse as settings_of
from nuq.settings.sparse import DGC, AdaptiveThreshold, RandomK, ThresholdV, TopK

TAG = b"SPRS"
_HEAD, _SCALE, _KEYED = struct.Struct("<BI"), struct.Struct("<f"), struct.Struct("<IIII")
_HALF, _HAS_KEY, _COARSE = 1, 2, 4
_LEVELS = struct.Struct("<4f")
_COARSE_BITS = 2
_LARGEST_HALF = 15  # the largest value is brought below 2^15, so that rounding cannot overflow
Select = Callable[[Tensor, Key], Tensor]


class Sparse(Compressor):
    """A compressor that sends a choice of indices, and their values.

    select: float32[n] and the key to indices int32[k].  most: the most indices of n coordinates; exactly so many where
    ``counted``.
    """

    def __init__(self, select: Select, most: Callable[[int], int], counted: bool, values: str, form: str) -> None:
        self.select, self.most = select, most
        self.half, self.coarse, self.form = values == "fp16", values == "2bit", form
        self.exact_bytes = counted and form in ("int32", "bitmap")

    def encode(self, tensor: Tensor, key: Key) -> Message:
        x = flat(tensor)
        indices = self._selected_indices(tensor, x, key)
        return self._message(x.numel(), _taken(x, indices), index_coding.encode(indices, x.numel(), self.form))

    def _selected_indices(self, tensor: Tensor, x: Tensor, key: Key) -> Tensor:
        del tensor
        return self.select(x, key)

    def _message(self, n: int, values: Tensor, indices: Tensor, keyed: bytes = b"") -> Message:
        flags, scale, count = (
            _HALF * self.half | _COARSE * self.coarse | (_HAS_KEY if keyed else 0),
            b"",
            values.numel(),
        )
        if self.coarse:
            levels, codes = _coarse(values)
            scale, values = _LEVELS.pack(*levels), bit_packing.pack_codes(codes, _COARSE_BITS)
        elif self.half:
            power = _power(values)
            scale, values = _SCALE.pack(power), (values / power).to(torch.float16)
        return Message.of(TAG, n, _HEAD.pack(flags, count) + scale + keyed, values, indices)

    def _decoded(self, message: Message) -> Tensor:
        indices, values = _read(message)
        total = torch.zeros(message.num_coordinates, dtype=torch.float32, device=message.body.device)
        selection.scatter(indices, values, total, accumulate=False)
        return total

    def _add(self, message: Message, total: Tensor) -> None:
        """Add the values at the message's indices alone."""
        indices, values = _read(message)
        selection.scatter(indices, values, total, accumulate=True)

    def indices(self, message: Message) -> Tensor | None:
        indices, _ = _read(message)
        return None if indices.numel() == message.num_coordinates else indices.long()

    def _head_bytes(self) -> int:
        return HEADER_BYTES + _HEAD.size + _SCALE.size * self.half + _LEVELS.size * self.coarse

    def _value_bytes(self, k: int) -> int:
        return bit_packing.packed_bytes(k, _COARSE_BITS) if self.coarse else (2 if self.half else 4) * k

    def message_bytes(self, num_coordinates: int) -> int:
        k = self.most(num_coordinates)
        return (
            self._head_bytes()
            + self._value_bytes(k)
            + index_coding.bound_up_to(k, num_coordinates, self.form, self.exact_bytes)
        )


class Keyed(Sparse):
    """The randomk method: k random indices, from (seed, step, parameter) alone, so that the receiver draws them too.

    Scaled by n/k it is unbiased, with an error of ``(n/k - 1) |x|^2`` (fp16 values are rounded to the nearest, which is
    not).  Unscaled it leaves ``(1 - k/n) |x|^2`` on average, but not always less than everything: it may meet zeros
    alone.  Papers scale by 1/ratio; here by n/k, which is 1/ratio but for the rounding of k.

    Stich et al., NeurIPS 2018; Wangni et al., NeurIPS 2018.
    """

    def __init__(self, settings: RandomK) -> None:
        check(type(settings), vars(settings), "")
        self.settings = settings
        super().__init__(self._select, lambda n: self._share(n).total, True, settings.values, "auto")
        self.exact_bytes = True

    def _share(self, num_coordinates: int) -> Share:
        return Share.of(num_coordinates, self.settings.bucket_size, self.settings.ratio)

    def _select(self, x: Tensor, key: Key) -> Tensor:
        return selection.chosen(self._share(x.numel()), _shared_words(key), x.device)

    def encode(self, tensor: Tensor, key: Key) -> Message:
        x = flat(tensor)
        selection.check_finite(x)
        share, words = self._share(x.numel()), _shared_words(key)
        indices = selection.chosen(share, words, x.device)
        values = _taken(x, indices)
        if self.settings.scaled and share.total < x.numel():
            values = values * _factors(share, x.device)
            if not bool(torch.isfinite(values).all()):
                raise NonFiniteError("the gradient times coordinates / k overflows float32")
        keyed = _KEYED.pack(*words, share.bucket_size, share.k)
        return self._message(x.numel(), values, torch.empty(0, dtype=torch.uint8, device=x.device), keyed)

    def message_bytes(self, num_coordinates: int) -> int:
        return self._head_bytes() + _KEYED.size + self._value_bytes(self._share(num_coordinates).total)


class Dgc(Sparse):
    """The dgc method: top-k by a sampled threshold, with Deep Gradient Compression's warm-up and dense tensors.

    Lin et al., ICLR 2018, arXiv 1712.01887, Sections 3.1 and 3.3.  Its memory (momentum correction, factor masking,
    local clipping) is a wrapper.  The warm-up's stages are steps here, epochs there; ``values=fp16`` and
    ``indices=int32`` are as in its code.
    """

    shaped = True  # encode takes a parameter's own shape where scope=tensor

    def __init__(self, settings: DGC) -> None:
        check(type(settings), vars(settings), "")
        self.settings = settings
        self._dense = settings.dense_1d and settings.scope == "tensor"
        warmup = settings.warmup_ratios if settings.warmup_every else []
        self._stages = [*warmup, settings.ratio]
        most, counted = max(self._stages), settings.selection == "exact" and not warmup and not self._dense
        super().__init__(
            lambda x, key: _top(x, self.ratio_at(key.step), settings.selection),
            lambda n: n if self._dense else selection.num_kept(n, most),
            counted,
            settings.values,
            settings.indices,
        )

    def usual_bytes(self, num_coordinates: int) -> int:
        """The approximate length of a message for a tensor of several dimensions after the warm-up."""
        k = selection.num_kept(num_coordinates, self.settings.ratio)
        indices = index_coding.bound_up_to(k, num_coordinates, self.form, False)
        return self._head_bytes() + self._value_bytes(k) + indices

    def ratio_at(self, step: int) -> float:
        """The ratio at a step: ``warmup_ratios[i]`` for ``warmup_every`` steps each, then ``ratio``."""
        every = self.settings.warmup_every
        return self._stages[min(step // every, len(self._stages) - 1)] if every else self._stages[-1]

    def _selected_indices(self, tensor: Tensor, x: Tensor, key: Key) -> Tensor:
        if self._dense and (key.piece_of or tensor.dim()) <= 1:
            selection.check_finite(x)
            return torch.arange(x.numel(), dtype=torch.int32, device=x.device)
        return self.select(x, key)


def _taken(x: Tensor, indices: Tensor) -> Tensor:
    return x if indices.numel() == x.numel() else x.index_select(0, indices)


def _power(values: Tensor) -> float:
    """The power of two, itself a normal number, that brings the largest value below 2^15."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    return 2.0 ** max(math.frexp(largest)[1] - _LARGEST_HALF, -126)


def _coarse(values: Tensor) -> tuple[list[float], Tensor]:
    """The four levels, and the code of every value: large and below zero, small and below, small, large."""
    above, wide = values >= 0, values.double()
    large = wide.abs() >= wide.abs().mean() if values.numel() else above
    codes = 2 * above + (large == above)
    cells = [codes == code for code in range(4)]
    sums = torch.stack([wide.where(cell, 0.0).sum() for cell in cells])
    counts = torch.stack([cell.sum() for cell in cells])
    return (sums / counts.clamp(min=1)).to(torch.float32).tolist(), codes


def _shared_words(key: Key) -> tuple[int, int]:
    return Key(key.seed, key.step, 0, key.parameter).words()


def _factors(share: Share, device: torch.device) -> Tensor:
    """The ratio of a bucket's coordinates to its indices, for every value: float32[total]."""
    whole = share.num_buckets - 1
    last = share.num_coordinates - whole * share.bucket_size
    factors = torch.full((share.total,), share.bucket_size / share.k, dtype=torch.float32, device=device)
    factors[whole * share.k :] = last / share.k_last
    return factors


def _read(message: Message) -> tuple[Tensor, Tensor]:
    """The indices int32[k] and the values float32[k]; MessageError where the body cannot be of this family."""
    body, n = message.body, message.num_coordinates
    message.check_tag(TAG, _HEAD.size, "of sparse values")
    head = bytes(body[: _HEAD.size + _LEVELS.size + _KEYED.size].cpu().numpy())
    flags, k = _HEAD.unpack_from(head)
    half, keyed, coarse = (bool(flags & flag) for flag in (_HALF, _HAS_KEY, _COARSE))
    scale_at = _HEAD.size
    keyed_at = scale_at + _SCALE.size * half + _LEVELS.size * coarse
    values_at = keyed_at + _KEYED.size * keyed
    places_at = values_at + (bit_packing.packed_bytes(k, _COARSE_BITS) if coarse else k * (2 if half else 4))
    if flags > 7 or (half and coarse) or k > n or body.numel() < places_at or (keyed and body.numel() != places_at):
        raise MessageError(f"flags {flags}, {k} values of {n} coordinates in {body.numel()} bytes: damaged")
    stored = body[values_at:places_at]
    if coarse:
        levels = torch.tensor(_LEVELS.unpack_from(head, scale_at), dtype=torch.float32, device=body.device)
        values = levels[bit_packing.unpack_codes(stored, k, 4, _COARSE_BITS).long()]
    else:
        values = from_bytes(stored, torch.float16 if half else torch.float32).to(torch.float32)
    if half:
        values = values * _SCALE.unpack_from(head, scale_at)[0]
    values = finite(values, "value")
    if not keyed:
        return index_coding.decode(body[places_at:], k, n), values
    k0, k1, bucket_size, each = _KEYED.unpack_from(head, keyed_at)
    return selection.chosen(_share_of(n, k, bucket_size, each), (k0, k1), body.device), values


def _share_of(n: int, k: int, bucket_size: int, each: int) -> Share:
    """The share that the sender chose by; MessageError where its numbers do not fit one another."""
    if not n:  # and so no value
        return Share(0, 1, 0, 0)
    whole = -(-n // max(bucket_size, 1)) - 1
    share, last = Share(n, bucket_size, each, k - whole * each), n - whole * bucket_size
    least = each if last == bucket_size else 1
    if not 0 < each <= bucket_size or not least <= share.k_last <= min(last, each):
        raise MessageError(f"{k} values of {n} coordinates, {each} of each bucket of {bucket_size}: damaged")
    return share


def _top(x: Tensor, ratio: float, how: str) -> Tensor:
    return selection.sampled(x, ratio) if how == "sampled" else selection.top(x, Share.of(x.numel(), 0, ratio))


def topk(settings: TopK) -> Sparse:
    """The topk method: the k = max(1, ceil(ratio n)) largest magnitudes, the first ones of equal magnitudes.

    Contractive: ``|x - C(x)|^2 <= (1 - k/n) |x|^2`` (exact).  Aji and Heafield, EMNLP 2017; Stich et al., NeurIPS 2018.
    """
    check(type(settings), vars(settings), "")
    ratio, size, how = settings.ratio, settings.bucket_size, settings.selection

    def select(x: Tensor, key: Key) -> Tensor:
        del key
        return selection.top(x, Share.of(x.numel(), size, ratio)) if size else _top(x, ratio, how)

    return Sparse(select, lambda n: Share.of(n, size, ratio).total, how == "exact", settings.values, settings.indices)


def _up_to_all(settings: settings_of.Sparse, select: Callable[[Tensor], Tensor]) -> Sparse:
    """A method whose indices may be none, or all."""
    check(type(settings), vars(settings), "")
    return Sparse(lambda x, key: select(x), lambda n: n, False, settings.values, settings.indices)


def thresholdv(settings: ThresholdV) -> Sparse:
    """The thresholdv method: all coordinates with |x| >= threshold; not contractive, as there may be none.

    Dutta et al., AAAI 2020, arXiv 1911.08250.
    """
    return _up_to_all(settings, lambda x: selection.at_least(x, settings.threshold))


def adaptive_threshold(settings: AdaptiveThreshold) -> Sparse:
    """The adaptive_threshold method: all coordinates with 2 |x| >= the largest magnitude; contractive.

    It sends nothing of a vector of zeros, where the formula asks for all.  Dutta et al., AAAI 2020, arXiv 1911.08250,
    after AdaComp (Chen et al., AAAI 2018).
    """
    return _up_to_all(settings, lambda x: selection.half_of_largest(x, settings.bucket_size))


def nonzero(settings: settings_of.Sparse) -> Sparse:
    """The nonzero method: all that are not zero, for means of sparse messages; it loses nothing (but by fp16)."""
    return _up_to_all(settings, lambda x: selection.at_least(x, selection.SMALLEST))
