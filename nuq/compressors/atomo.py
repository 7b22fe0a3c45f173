r"""ATOMO: a gradient as a sum of atoms, of which a few travel, larger ones with higher probability.

Wang et al., NeurIPS 2018, arXiv 1806.04090.

``nuq.kernels.atoms`` has the mathematics: the probabilities of least error under a budget, exactly (the paper's code
clips them once), singular atoms exact or randomized, and why the estimate stays unbiased; the differences from the
paper are told there.

**svd**: each parameter as a matrix (``matrix_shape``: a kernel (o, i, h, w) is o x ihw, whose atoms take o + ihw
numbers; ``matrix=pairs`` is the paper's oi/2 x 2hw, 5 to 25 times as large per atom).  A flat vector (scope=model, a
shard that a collective cut, a bias) is folded into a near square, padded by zeros where its length has no fitting
divisor.  A matrix whose ``svd_rank`` atoms take more than a third of its bytes travels whole and exact: narrow layers,
vectors of up to about 330 (svd_rank=3; few, where ``bits`` make atoms small).  With ``bits``, singular vectors travel
as codes of 2^bits equally spaced levels in units of the largest of 512 or fewer coordinates, rounded at random; the
sizes are in the scales, which stay float32.  Left and right ones have random numbers of their own, so that the mean of
their product is the product of their means, and this times the mean over the atoms kept: still unbiased.

**entries**: atoms are coordinates, each kept with probability min(1, |x_i| / level): on average at most s = max(1,
ceil(ratio n)) of them, which coins may exceed, or keep none: decoded zero.  All but those above the level count the
same when they travel, so that only their signs do.  A budget of |x|_1 / |x|_inf makes this TernGrad, and |x|_1 / |x|_2
QSGD with one level (paper, Section 4): their probabilities are |x_i| / |x|_inf and |x_i| / |x|_2.

The sender alone finds atoms: eigenvectors differ in their last bits between numbers of threads and machines.  Receivers
form the sum of products in a fixed order with one rounding each (``nuq.kernels.atoms.product_sum``), so that they agree
to the bit.

Limit of the speed: the exact form multiplies m^2 n / 2 float64 numbers and finds m eigenvectors of length m; the
randomized one passes over the matrix ten times; entries over the vector three times, beside coded indices (40 to 60 ns
each).  On one core ``torch.linalg.svd`` of 512 x 4608 takes 9 times as long as the exact form and 65 times as long as
the randomized one.

Body of a message::

    kind uint8
    0, whole: float32[n]
    1, matrix: bits uint8, by columns uint8, 1 zero byte, m, n, k, q: uint32 each; left vectors, right vectors, rows,
       indices of the rows (``nuq.coding.index_coding``); vectors are float32, or scales float32 and packed codes
       (``nuq.kernels.bit_packing``).  By columns: of the transpose
    2, entries: indices sent k, certain ones c uint32, level float32, bytes of the next part uint32; the certain ones'
       numbers among those sent (``nuq.coding.index_coding``); their values float32[c]; signs of the others, a bit each;
       indices (``nuq.coding.index_coding``)
"""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from nuq.coding import index_coding
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message, Reader, flat
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import atoms, bit_packing, operators, selection, signs
from nuq.kernels.atoms import Kept
from nuq.kernels.selection import Share
from nuq.kernels.spec import Key, Words
from nuq.levels.level_sets import equally_spaced
from nuq.settings.atomo import ATOMO

TAG = b"ATMO"
WHOLE, MATRIX, ENTRIES = range(3)
_KIND, _MATRIX, _ENTRIES = struct.Struct("<B"), struct.Struct("<BBxIIII"), struct.Struct("<IIfI")
_WORTH = 3  # atoms that take more than one in so many of a matrix's bytes are not worth their error
_BUCKET = 512  # coordinates of a vector that share a scale, at most
_SUMMED = 1 << 16  # coordinates of one sum of magnitudes


class Atomo(Compressor):
    """A compressor that sends a few atoms of a gradient, drawn without bias: singular ones or coordinates."""

    shaped = True  # encode takes a parameter's own shape where scope=tensor
    exact_bytes = False
    settings: ATOMO

    def encode(self, tensor: Tensor, key: Key) -> Message:
        """Encode a tensor of any shape; NonFiniteError where it is not finite, or its estimate would not be."""
        x = flat(tensor)
        if self.settings.atoms == "entries" and x.numel():
            return self._entries(x, key)
        m, n = atoms.matrix_shape(tensor.shape, self.settings.matrix)
        if self._whole(m, n, x.numel()):
            selection.check_finite(x)
            return Message.of(TAG, x.numel(), _KIND.pack(WHOLE), x)
        return self._matrix(x, m, n, key)

    def _whole(self, m: int, n: int, size: int) -> bool:
        """Whether ``size`` coordinates (m x n) travel whole: atoms are not worth it, or would take as many bytes."""
        vectors, total = self._atoms_bytes(m, n)
        return _WORTH * vectors >= 4 * m * n or total >= 4 * size

    def _atoms_bytes(self, m: int, n: int) -> tuple[int, int]:
        """Upper bounds in bytes of the vectors of a full budget of atoms, and of the body that holds them."""
        budget, bits, rows = self.settings.svd_rank, self.settings.bits, min(m, n)
        vectors = _coded_bytes(budget, m, bits) + _coded_bytes(budget, n, bits)
        return vectors, _MATRIX.size + vectors + index_coding.bound_up_to(min(budget, rows), rows, "auto", False)

    def _matrix(self, x: Tensor, m: int, n: int, key: Key) -> Message:
        settings, size = self.settings, x.numel()
        matrix = (torch.nn.functional.pad(x, (0, m * n - size)) if m * n > size else x).view(m, n)
        kept = atoms.estimate(matrix if m <= n else matrix.T, settings.svd_rank, settings.svd, key)
        head = _MATRIX.pack(settings.bits, m > n, min(m, n), max(m, n), len(kept.left), len(kept.rows))
        vectors: list[Tensor] = []
        for name in ("left", "right", "rows"):
            vectors += _coded(getattr(kept, name), settings.bits, key.of(name).words())
        indices = index_coding.encode(kept.indices.to(torch.int32), min(m, n))
        return Message.of(TAG, size, _KIND.pack(MATRIX) + head, *vectors, indices)

    def _entries(self, x: Tensor, key: Key) -> Message:
        n = x.numel()
        share = Share.of(n, 0, self.settings.ratio)
        largest = x[selection.top(x, share).long()].abs().double().sort(descending=True).values
        beyond = float(signs.side_sums(x, _SUMMED)[0].sum()) - float(largest.sum())
        water = atoms.water_level(largest, max(beyond, 0.0), share.total)
        level = torch.tensor(water, dtype=torch.float64, device="cpu")
        narrow = level.to(torch.float32)
        # the level is rounded up, to stay within the budget
        above = torch.nextafter(narrow, torch.full_like(narrow, torch.inf))
        narrow = torch.where(narrow.double() < level, above, narrow)
        if not math.isfinite(float(narrow)):
            raise NonFiniteError("the estimate of coordinates so large would overflow float32")
        indices = atoms.tossed(x, float(narrow), key.words())
        values = x[indices.long()]
        certain = values.abs() > narrow.to(x.device)
        numbers = index_coding.encode(certain.nonzero().view(-1).to(torch.int32), indices.numel())
        head = _ENTRIES.pack(indices.numel(), int(certain.sum()), float(narrow), numbers.numel())
        others = bit_packing.pack_codes((values[~certain] > 0).to(torch.int32), 1)
        parts = (numbers, values[certain], others, index_coding.encode(indices, n))
        return Message.of(TAG, n, _KIND.pack(ENTRIES) + head, *parts)

    def _decoded(self, message: Message) -> Tensor:
        kind, rest = _opened(message)
        n = message.num_coordinates
        if kind == WHOLE:
            values = rest.floats(n)
            rest.end()
            return values
        if kind == MATRIX:
            return atoms.restored(*_read_matrix(rest, n)).view(-1)[:n]
        entries = _read_entries(rest, n)
        total = torch.zeros(n, dtype=torch.float32, device=message.body.device)
        selection.scatter(*entries, total, accumulate=False)
        return total

    def _add(self, message: Message, total: Tensor) -> None:
        """Add the message; entries are added at their indices alone."""
        kind, rest = _opened(message)
        if kind == ENTRIES:
            selection.scatter(*_read_entries(rest, message.num_coordinates), total, accumulate=True)
        else:
            super()._add(message, total)

    def message_bytes(self, num_coordinates: int) -> int:
        """The largest length of a message over all shapes; with svd, a matrix with few rows travels whole."""
        n, head = num_coordinates, HEADER_BYTES + _KIND.size
        if self.settings.atoms == "svd" or not n:
            return head + 4 * n
        signs, indices = -(-n // 8), index_coding.bound(n - 1, n)
        return head + _ENTRIES.size + 4 * self._budget(n) + signs + 2 * indices

    def usual_bytes(self, num_coordinates: int) -> int:
        """The approximate length: the bound for a nearly square matrix (svd), the budget of certain entries."""
        n, head = num_coordinates, HEADER_BYTES + _KIND.size
        if self.settings.atoms == "entries" and n:
            return head + _ENTRIES.size + 4 * self._budget(n) + index_coding.bound(self._budget(n), n)
        rows, columns = atoms.matrix_shape((n,))
        return head + (4 * n if self._whole(rows, columns, n) else self._atoms_bytes(rows, columns)[1])

    def _budget(self, num_coordinates: int) -> int:
        """The number of entries."""
        return Share.of(num_coordinates, 0, self.settings.ratio).total


def _opened(message: Message) -> tuple[int, Reader]:
    """The kind of a message, and a reader of what follows it."""
    body = message.body
    if message.tag != TAG or not body.numel() or int(body[0]) > ENTRIES:
        raise MessageError(f"a message tagged {message.tag!r} with {body.numel()} bytes is not of atoms ({TAG!r})")
    return int(body[0]), Reader(body, _KIND.size)


# --- vectors -------------------------------------------------------------------------------------------------------


def _buckets(length: int) -> tuple[int, int]:
    """The number and the size of a vector's nearly equal buckets, of at most 512; a shorter last one is padded."""
    count = max(-(-length // _BUCKET), 1)
    return count, max(-(-length // count), 1)


def _coded_bytes(count: int, length: int, bits: int) -> int:
    if not bits:
        return 4 * count * length
    buckets, size = _buckets(length)
    return 4 * count * buckets + bit_packing.packed_bytes(count * buckets * size, bits)


def _coded(vectors: Tensor, bits: int, words: Words) -> list[Tensor]:
    """The parts of float32[count, length] that travel: the numbers themselves, or scales and codes."""
    if not bits:
        return [vectors]
    count, length = vectors.shape
    buckets, size = _buckets(length)
    flat = torch.nn.functional.pad(vectors, (0, buckets * size - length)).reshape(-1)
    scales = torch.empty(count * buckets, dtype=torch.float32, device=flat.device)
    codes = torch.empty(bit_packing.packed_bytes(flat.numel(), bits), dtype=torch.uint8, device=flat.device)
    operators.encode_(flat, 1 << bits, scales, codes, bucket_size=size, norm="linf", packing=bits, key=words)
    return [scales, codes]


def _decoded(data: Reader, count: int, length: int, bits: int) -> Tensor:
    """The inverse of ``_coded``: float32[count, length]."""
    if not bits:
        return data.floats(count * length).view(count, length)
    buckets, size = _buckets(length)
    scales = data.floats(count * buckets)
    codes = data.take(bit_packing.packed_bytes(count * buckets * size, bits))
    flat = torch.empty(count * buckets * size, dtype=torch.float32, device=codes.device)
    levels = torch.tensor(equally_spaced(1 << bits).values, dtype=torch.float32, device=codes.device)
    operators.decode_(codes, scales, levels, flat, bucket_size=size, packing=bits, accumulate=False)
    return flat.view(count, buckets * size)[:, :length].contiguous()


# --- bodies --------------------------------------------------------------------------------------------------------


def _read_matrix(data: Reader, size: int) -> tuple[Kept, bool]:
    """The atoms that were kept, and whether they are those of the transpose."""
    bits, by_columns, m, n, k, q = data.numbers(_MATRIX)
    if bits > 8 or by_columns > 1 or k > m or q > m or not 0 < m <= n or not 0 <= m * n - size < m:
        raise MessageError(f"{bits} bits, {k} atoms and {q} rows of {m} x {n} for {size} coordinates: damaged")
    left, right, rows = _decoded(data, k, m, bits), _decoded(data, k, n, bits), _decoded(data, q, n, bits)
    return Kept(left, right, index_coding.decode(data.rest(), q, m).long(), rows).check(MessageError), bool(by_columns)


def _read_entries(data: Reader, n: int) -> tuple[Tensor, Tensor]:
    """The indices int32[k] and the values float32[k] of the entries."""
    k, num_certain, level, size = data.numbers(_ENTRIES)
    if num_certain > k or k > n or not 0 <= level <= torch.finfo(torch.float32).max:
        raise MessageError(f"{k} entries of {n}, {num_certain} of them certain, level {level}: damaged")
    certain = index_coding.decode(data.take(size), num_certain, k).long()
    exact, above = data.floats(num_certain), data.take(bit_packing.packed_bytes(k - num_certain, 1))
    indices = index_coding.decode(data.rest(), k, n)
    values = torch.empty(k, dtype=torch.float32, device=above.device)
    others = torch.ones(k, dtype=torch.bool, device=above.device)
    others[certain] = False
    values[certain] = exact
    values[others] = (2 * bit_packing.unpack_codes(above, k - num_certain, 2, 1) - 1) * level
    return indices, values
