"""CASQ, the clustered sketch of LSS: the cluster of every value, and means of the coordinates that share a cell.

Values are clustered by magnitude, above and below zero apart: k-means on a sample, what lies above its 95th percentile
being a cluster of its own (``nuq.kernels.sketches.clusters``).  The coordinates of a cluster are hashed by index into
the cluster's cells; what travels is every coordinate's cluster, entropy coded, and every cell's mean
(``nuq.kernels.sketches.cells``).  With m cells for the N coordinates of a cluster the error is about ``1 - m / N`` of
the cluster's variance: cells lower it much only where they are nearly as many as coordinates, clusters always.  Body::

    flags uint8 (1: half precision), coder uint8, clusters of either sign uint16
    k0, k1 uint32           of the hash
    scale float32           half precision: a power of two that the means were divided by
    cells uint32[2 K]       of each cluster: first above, then below zero, by magnitude
    means float32 or float16, of all cells; 0 of an empty one
    clusters                 ``nuq.coding.entropy``: 0 for a zero, 1 .. K above zero, K + 1 .. 2 K below

The method is biased, so that it wants error feedback, and contractive: a mean is the projection of its cell's
coordinates, which all have one sign, so ``|x - C(x)|^2 = |x|^2 - sum of (coordinates of the cell) * mean^2`` (before
rounding).

State: with ``refresh_every = 1`` none.  Above, the clusters found at the last refresh, by worker and parameter; a
message holds all that decoding needs, so only the sender's copy counts.  A sender without a state (a fresh one between
two refreshes) finds clusters at once.

Source: LSS / CASQ, a fork of ATOMO's code; there is no paper that we know of; ``benchmarks/lss.py`` of commit 6ad55eb7
shows its signed errors of large and small values.  Differences from it: a cluster has no more cells than coordinates;
zeros are a cluster of their own and stay zero; clusters come from a stratified sample by exact sums; the percentile is
that of each sign; any number of coordinates decodes from the bytes alone, with the hash's seed in them (the original
shares it beforehand).

Limit of the speed: every coordinate is read three times, goes to a cell at random and through the coder; of the time
for 10^7, two thirds are sums of cells and Huffman codes.  Decoding: the coder, and a read at random for every
coordinate.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq.coding import entropy
from nuq.compressors.body import entropy_coded, entropy_decoded
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message, finite, flat, from_bytes, unpacked
from nuq.errors import MessageError
from nuq.kernels.selection import num_kept
from nuq.kernels.sketches import cells, clusters
from nuq.kernels.sketches.cells import Ints
from nuq.kernels.spec import Key
from nuq.settings.sketches import CASQ

TAG = b"CASQ"
_HEAD, _SCALE = struct.Struct("<BBHII"), struct.Struct("<f")
_HALF = 1
_Refreshed = tuple[int, Tensor]  # the period of the refresh, and its thresholds float32[2, K - 1]


class Casq(Compressor):
    """A compressor that sends the cluster of every value, and means of the coordinates that share a cell."""

    exact_bytes = False

    def __init__(self, settings: CASQ) -> None:
        super().__init__(settings)
        self.half = settings.values == "fp16"
        self._clusters: dict[int, dict[str, _Refreshed]] = {}  # by worker and parameter

    # --- clusters ---

    def thresholds(self, x: Tensor, key: Key) -> clusters.Thresholds:
        """The thresholds for x, finite: new ones where a refresh is due, else this worker's last of the parameter."""
        every, period = self.settings.refresh_every, key.step // self.settings.refresh_every
        of_worker = self._clusters.setdefault(key.worker, {}) if every > 1 else {}
        known = of_worker.get(key.parameter)
        if known is not None and known[0] == period:
            return known[1].numpy()
        sample = clusters.sample(x, self.settings.sample_size, key.of("clusters").words())
        found = clusters.trained(sample, self.settings.clusters, self.settings.outlier_percentile)
        of_worker[key.parameter] = period, torch.from_numpy(found)
        return found

    def cells_per_cluster(self, num_coordinates: int) -> int:
        """The number of cells of a cluster with so many coordinates or more."""
        kept = num_kept(num_coordinates, self.settings.cells_ratio)
        return self.settings.cells or max(1, -(-kept // (2 * self.settings.clusters)))

    # --- messages ---

    def encode(self, tensor: Tensor, key: Key) -> Message:
        """Encode a gradient; NonFiniteError where it is not finite."""
        x, words = flat(tensor), key.words()
        most = cells.largest(x)
        thresholds = self.thresholds(x, key)
        ids = cells.numbers(x, thresholds, 1)
        sizes = self._cells(ids)
        scales = cells.sum_scales(thresholds, most, 1, x.numel())
        means = cells.means(x, ids, sizes, scales, words)
        coder = self.settings.coding
        head = _HEAD.pack(_HALF * self.half, entropy.CODERS.index(coder), self.settings.clusters, *words)
        if self.half:
            power = cells.power(means)
            head, means = head + _SCALE.pack(power), (means / power).to(torch.float16)
        head += sizes[1:].astype("<u4").tobytes()
        return Message.of(TAG, x.numel(), head, means, entropy_coded(ids, sizes.size, coder))

    def _cells(self, ids: Tensor) -> Ints:
        """The number of cells of each cluster number: int64[2 K + 1], none for zeros."""
        counts = cells.counted(ids, 2 * self.settings.clusters + 1)
        sizes = np.minimum(counts, self.cells_per_cluster(ids.numel()))
        sizes[0] = 0
        return sizes

    def _decoded(self, message: Message) -> Tensor:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size + _SCALE.size, "of clusters and cells")
        flags, coder, num_clusters, *words = unpacked(_HEAD, body)
        if flags > _HALF or coder >= len(entropy.CODERS) or not 2 <= num_clusters <= 127:
            raise MessageError(f"flags {flags}, coder {coder}, {num_clusters} clusters: damaged")
        sizes_at = _HEAD.size + _SCALE.size * bool(flags & _HALF)
        means_at = sizes_at + 8 * num_clusters
        if body.numel() < means_at:
            raise MessageError(f"{body.numel()} bytes where the numbers of cells alone take {means_at}: cut short")
        sizes = np.concatenate([[0], body[sizes_at:means_at].cpu().numpy().view("<u4").astype(np.int64)])
        codes_at = means_at + (2 if flags & _HALF else 4) * int(sizes.sum())
        if body.numel() <= codes_at:
            raise MessageError(f"{body.numel()} bytes where the cells alone take {codes_at}: cut short")
        means = from_bytes(body[means_at:codes_at], torch.float16 if flags & _HALF else torch.float32).to(torch.float32)
        if flags & _HALF:
            means *= unpacked(_SCALE, body[_HEAD.size :])[0]
        means = finite(means, "mean")
        try:
            ids = entropy_decoded(body[codes_at:], n, sizes.size, entropy.CODERS[coder])
            return cells.spread(ids, sizes, means, (words[0], words[1]))
        except ValueError as error:
            raise MessageError(str(error)) from error

    def message_bytes(self, num_coordinates: int) -> int:
        """The largest length of a message: the most cells possible, and no gain by the entropy coder."""
        numbers = 2 * self.settings.clusters
        most_cells = min(numbers * self.cells_per_cluster(num_coordinates), num_coordinates)
        head = HEADER_BYTES + _HEAD.size + _SCALE.size * self.half + 4 * numbers
        return head + (2 if self.half else 4) * most_cells + entropy.encoded_bound(num_coordinates, numbers + 1)

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """The refreshes that are kept, by_worker: worker -> parameter -> [number of the refresh, thresholds]."""
        if self.settings.refresh_every == 1:
            return {}
        clusters = self._clusters.items()
        return {
            "by_worker": {w: {name: [at, found.tolist()] for name, (at, found) in own.items()} for w, own in clusters}
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = state.get("by_worker", {})
        read = functools.partial(torch.tensor, dtype=torch.float32, device="cpu")
        self._clusters = {
            w: {name: (period, read(rows)) for name, (period, rows) in own.items()} for w, own in saved.items()
        }
