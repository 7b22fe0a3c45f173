"""SketchML: the quantile bucket of every value, exactly or through a min-max sketch.

The magnitudes of either sign are cut into buckets of as many values (quantiles of a sample,
``nuq.kernels.sketches.clusters``); a value is decoded to the mean of its bucket.  With ``rows = 0`` each coordinate's
bucket travels.  Else the buckets of a sign are put into groups; each coordinate's group travels exactly, and its bucket
within the group through the group's min-max sketch (``nuq.kernels.sketches.minmax``), which may give it a smaller one,
so a smaller magnitude, of the same sign.  Zeros do not travel; where there are any, the indices of the others do.
Body::

    rows uint8, coder uint8, buckets of either sign uint8, groups of either sign uint8
    k0, k1 uint32                   of the hashes; 0 without a sketch
    coordinates that are not zero uint32, bytes of the coded symbols uint32, bytes of the coded cells uint32
    used uint8[ceil(2 buckets / 8)]  a bit for every bucket that has a value, above zero first
    means float32                   of the used buckets
    columns uint32[2 groups]        of a row of each group's sketch; with a sketch only
    symbols                         ``nuq.coding.entropy``: the buckets or groups of the coordinates that are not zero
    cells                           ``nuq.coding.entropy``; with a sketch only
    indices                         ``nuq.coding.index_coding``; nothing where no coordinate is zero

Source: Jiang, Fu, Yang, Cui: SketchML, SIGMOD 2018, followed in the quantile buckets by sign, the min on insertion and
the max on query, the groups (Section 3.3) and the defaults (256 buckets of both signs, 8 groups, 2 rows, a fifth of the
coordinates as columns).  Differences: buckets decode to their exact means instead of the middles of their thresholds,
so without a sketch the method is contractive; quantiles come from a sample instead of a quantile sketch of all; groups
travel as entropy-coded symbols instead of one list of delta-coded keys for each (3 bits a coordinate instead of more
than 4); keys of the coordinates that are not zero are coded by ``nuq.coding.index_coding`` instead of in whole bytes;
cells are entropy coded.

The paper has no error feedback; ``feedback.kind=error`` adds it, and helps: the sketch shrinks values.  Limit of the
speed: writes at random to a sketch that no cache holds (10^7 coordinates: 4 MB for every thread), once for each row,
which are half of the time; and the coder of groups and cells.  Decoding reads as much at random.
"""

from __future__ import annotations

import struct

import numpy as np
import torch
from torch import Tensor

from nuq.coding import entropy, index_coding
from nuq.compressors.body import entropy_coded, entropy_decoded
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message, Reader, flat, unpacked
from nuq.errors import MessageError
from nuq.kernels import selection
from nuq.kernels.sketches import cells, clusters
from nuq.kernels.sketches.cells import Ints
from nuq.kernels.sketches.minmax import Sketches
from nuq.kernels.spec import Key
from nuq.settings.sketches import SketchML as Settings

TAG = b"SKML"
_HEAD = struct.Struct("<BBBBIIIII")
# words of the sample's indices: the same for all, so that without a sketch the message depends on the gradient alone
_SAMPLED_BY = (0, 0)
_BITMAP_FROM = 1 / 16  # of the coordinates: coded indices would be smaller by little, and take much longer


class SketchML(Compressor):
    """A compressor that sends the quantile bucket of every value, exactly or through a min-max sketch."""

    exact_bytes = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.groups = min(settings.groups, settings.buckets)  # a group has a bucket at least

    def encode(self, tensor: Tensor, key: Key) -> Message:
        """Encode a gradient; NonFiniteError where it is not finite."""
        x, device = flat(tensor), tensor.device
        n, buckets, most = x.numel(), self.settings.buckets, cells.largest(x)
        indices = torch.empty(0, dtype=torch.uint8, device=device)
        if bool((x == 0).any()):
            kept = selection.at_least(x, selection.SMALLEST)
            indices = index_coding.encode(kept, n, "bitmap" if kept.numel() >= _BITMAP_FROM * n else "auto")
            x = x.index_select(0, kept)
        thresholds = clusters.quantiles(clusters.sample(x, self.settings.sample_size, _SAMPLED_BY), buckets)
        ids = cells.numbers(x, thresholds, 0)
        counts = cells.counted(ids, 2 * buckets)
        used = counts > 0
        means = cells.means(x, ids, used.astype(np.int64), cells.sum_scales(thresholds, most, 0, x.numel()), (0, 0))
        words = key.words() if self.settings.rows else (0, 0)
        tables, symbols, coded_cells = self._sketched(ids, counts, words)
        coder = self.settings.coding
        sizes = (x.numel(), symbols.numel(), coded_cells.numel())
        head = _HEAD.pack(self.settings.rows, entropy.CODERS.index(coder), buckets, self.groups, *words, *sizes)
        head += np.packbits(used, bitorder="little").tobytes()
        tables = torch.from_numpy(tables.astype("<u4").view(np.uint8))
        return Message.of(TAG, n, head, means, tables, symbols, coded_cells, indices)

    def _sketched(self, ids: Tensor, counts: Ints, words: tuple[int, int]) -> tuple[Ints, Tensor, Tensor]:
        """The number of columns of the groups' sketches, the coded symbols and the coded cells."""
        if not self.settings.rows:
            nothing = torch.empty(0, dtype=torch.uint8, device="cpu")
            return np.empty(0, dtype=np.int64), self._coded(ids, 2 * self.settings.buckets), nothing
        group_of, within, each = _groups(self.settings.buckets, self.groups)
        of_group = np.bincount(group_of[: counts.size], weights=counts, minlength=2 * self.groups)
        columns = np.ceil(of_group * self.settings.columns_ratio).astype(np.int64)
        sketches = Sketches.of(columns, self.settings.rows, words)
        found, symbols = sketches.insert(ids, group_of, within, each - 1)
        return sketches.columns, self._coded(symbols, 2 * self.groups), self._coded(found, each)

    def _coded(self, symbols: Tensor, num_symbols: int) -> Tensor:
        return entropy_coded(symbols, num_symbols, self.settings.coding) if symbols.numel() else symbols

    def _decoded(self, message: Message) -> Tensor:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size, "of quantiles")
        rows, coder, buckets, groups, k0, k1, k, symbol_bytes, cell_bytes = unpacked(_HEAD, body)
        if coder >= len(entropy.CODERS) or not 1 <= buckets <= 128 or not 1 <= groups <= buckets or rows > 16 or k > n:
            found = f"{rows} rows, coder {coder}, {buckets} buckets, {groups} groups, {k} of {n} coordinates"
            raise MessageError(f"{found}: damaged")
        reader = Reader(body, _HEAD.size)
        used = np.unpackbits(reader.array(-(-2 * buckets // 8)), count=2 * buckets, bitorder="little").astype(np.int64)
        means = reader.floats(int(used.sum()))
        columns = reader.array(8 * groups).view("<u4").astype(np.int64) if rows else np.empty(0, dtype=np.int64)
        symbols, coded_cells = reader.take(symbol_bytes), reader.take(cell_bytes)
        kept = index_coding.decode(reader.rest(), k, n)
        if not k:
            if symbol_bytes or cell_bytes or columns.any():
                raise MessageError("symbols of no coordinates: damaged")
            return torch.zeros(n, dtype=torch.float32, device=body.device)
        name = entropy.CODERS[coder]
        try:
            found = entropy_decoded(symbols, k, 2 * groups if rows else 2 * buckets, name)
            if rows:
                found = _unsketched(found, Sketches.of(columns, rows, (k0, k1)), coded_cells, name, buckets, groups)
            elif cell_bytes:
                raise MessageError(f"{cell_bytes} bytes of cells without a sketch: damaged")
            values = cells.spread(found, used, means, (0, 0))
        except ValueError as error:
            raise MessageError(str(error)) from error
        if k == n:
            return values
        total = torch.zeros(n, dtype=torch.float32, device=body.device)
        selection.scatter(kept, values, total, accumulate=False)
        return total

    def message_bytes(self, num_coordinates: int) -> int:
        """The largest length of a message: no gain by the entropy coder, and one bit for each index."""
        n, settings, both = num_coordinates, self.settings, 2 * self.settings.buckets
        head = HEADER_BYTES + _HEAD.size + -(-both // 8) + 4 * min(both, n) + 1 + -(-n // 8)
        if not settings.rows:
            return head + entropy.encoded_bound(n, both)
        most_cells = settings.rows * (int(np.ceil(n * settings.columns_ratio)) + 2 * self.groups)
        cells_bytes = entropy.encoded_bound(most_cells, -(-settings.buckets // self.groups))
        return head + 8 * self.groups + entropy.encoded_bound(n, 2 * self.groups) + cells_bytes


def _groups(buckets: int, groups: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The group of every id and the number within it, uint8[256] each, and the most buckets of a group."""
    each = -(-buckets // groups)
    ids = np.arange(2 * buckets)
    side, place = ids // buckets, ids % buckets
    found = np.zeros((2, 256), dtype=np.uint8)
    found[0, : ids.size], found[1, : ids.size] = side * groups + place // each, place % each
    return found[0], found[1], each


def _unsketched(symbols: Tensor, sketches: Sketches, coded: Tensor, coder: str, buckets: int, groups: int) -> Tensor:
    """The buckets that the sketches return: uint8[k]; ValueError for damage."""
    each, present = -(-buckets // groups), cells.counted(symbols, 2 * groups) > 0
    num_cells, most_cells = sketches.num_cells, min(16 * (4 * symbols.numel() + 2 * groups), (1 << 32) - 1)
    if ((sketches.columns > 0) != present).any() or num_cells > most_cells:
        columns = sketches.columns.tolist()
        raise MessageError(f"sketches of {columns} columns for {symbols.numel()} coordinates: damaged")
    table = entropy_decoded(coded, num_cells, each, coder)
    number = np.arange(2 * groups)
    first = torch.from_numpy((number // groups * buckets + number % groups * each).astype(np.uint8)).to(symbols.device)
    return first[symbols.long()] + sketches.query(symbols, table)
