"""rANS of codes that lie on a GPU: the bytes of ``nuq.coding.entropy``, without a copy of codes or bytes to the host.

What crosses the bus when codes are coded: their histogram and the frequencies made of it (8 bytes a symbol, for each
context), and the sizes of the chunks (4 bytes each); when they are decoded: the head of the encoding, and the
frequencies.  The host waits for the GPU three times each.  Huffman coding is the host's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nuq.coding import entropy
from nuq.coding.entropy import Bytes, Ints
from nuq.errors import MessageError
from nuq.kernels import bit_packing
from nuq.kernels.cuda import rans_operators
from nuq.kernels.cuda.launch import Modules
from nuq.kernels.host import numpy_of


def encode(
    device: Modules, codes: Tensor, num_symbols: int, contexts: Tensor | None = None, num_contexts: int = 1
) -> Tensor:
    """The bytes of ``entropy.encode(codes, num_symbols, "rans", contexts, num_contexts)``, on the codes' device.

    codes: uint8[n], or int16[n] for more than 256 symbols, contiguous; contexts: uint8[n] below num_contexts.
    ValueError for a code beyond num_symbols.
    """
    counts = _counts(codes, num_symbols, contexts, num_contexts)
    limit = entropy.packed_bytes(codes.numel(), num_symbols)
    used = np.flatnonzero(counts.sum(axis=0))
    if len(used) == 1 and num_symbols > 1 and limit >= 2:
        return _bytes(np.array([entropy.CONSTANT, used[0] & 0xFF, used[0] >> 8]), codes.device)
    plan = entropy.planned_rans(counts, codes.numel(), limit) if len(used) > 1 else None
    if plan is not None:
        given = contexts if plan.with_contexts else None
        frequencies, table_bits, lanes, chunk = plan.arguments
        how = (torch.from_numpy(frequencies), table_bits, lanes, chunk, given)
        sizes, coded = rans_operators.rans_encode(device, codes, *how)
        head = plan.head(np.array(sizes))
        if head.size + coded.numel() <= 1 + limit:
            return torch.cat([_bytes(head, codes.device), coded])
    packed = bit_packing.pack_codes(codes, bit_packing.packing(num_symbols)) if num_symbols > 1 else codes[:0]
    return torch.cat([_bytes(np.array([entropy.RAW]), codes.device), packed])


def decode(
    device: Modules,
    data: Tensor,
    num_codes: int,
    num_symbols: int,
    contexts: Tensor | None = None,
    num_contexts: int = 1,
) -> Tensor:
    """The codes of ``entropy.decode``, uint8[num_codes] or int16 for more than 256 symbols, on the device of the data.

    data: uint8[bytes]; contexts as in ``encode``.  MessageError as there.
    """
    begin = data[:4].cpu().numpy()
    forms = {entropy.RANS: 1} if contexts is None else {entropy.RANS: 1, entropy.RANS_CONTEXTS: num_contexts}
    if begin.size < 4 or begin[0] not in forms or num_codes < 2 or num_symbols < 2:
        return _without_table(data, num_codes, num_symbols, contexts, num_contexts)
    rows = forms[int(begin[0])]
    longest = entropy.longest_rans_head(int(begin[2:].view("<u2")[0]), num_symbols, rows)
    body = data[1:]
    head = body[:longest].cpu().numpy()
    start, sizes, (found, table_bits, lanes, chunk) = entropy.read_rans_head(
        head, body.numel(), num_codes, num_symbols, rows
    )
    given = contexts if begin[0] == entropy.RANS_CONTEXTS else None
    frequencies = torch.from_numpy(found)
    empty = frequencies.sum(1) == 0
    if bool(empty.any()) and (given is None or bool(empty.to(data.device)[given.long()].any())):
        raise MessageError(entropy.NO_FREQUENCIES)
    how = (frequencies, table_bits, lanes, chunk, given)
    codes = rans_operators.rans_decode(device, body[start:], sizes.tolist(), num_codes, *how)
    if codes is None:
        raise MessageError(entropy.NOT_WHOLE)
    return codes


def _bytes(values: Bytes | Ints, device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.uint8)).to(device)


def _counts(codes: Tensor, num_symbols: int, contexts: Tensor | None, num_contexts: int) -> Ints:
    """The counts of all codes by context: int64[num_contexts, num_symbols]; ValueError for one that is too large."""
    if codes.numel() and int(codes.max()) >= num_symbols:
        raise ValueError(f"code {int(codes.max())}: must be below num_symbols={num_symbols}")
    joint = codes if contexts is None else contexts.to(torch.int32) * num_symbols + codes
    counts = torch.bincount(joint, minlength=num_contexts * num_symbols)
    return counts.cpu().numpy().reshape(num_contexts, num_symbols)


def _without_table(
    data: Tensor, num_codes: int, num_symbols: int, contexts: Tensor | None, num_contexts: int
) -> Tensor:
    """The codes of an encoding of another form; ``entropy.decode`` says what is wrong with bytes that are none."""
    form = int(data[0]) if data.numel() else -1
    if form == entropy.CONSTANT and num_codes:
        code = int(entropy.decode(data.cpu().numpy(), 1, num_symbols, "rans")[0])
        return torch.full((num_codes,), code, dtype=_type(num_symbols), device=data.device)
    if form == entropy.RAW and num_symbols > 1 and num_codes:
        try:
            codes = bit_packing.unpack_codes(data[1:], num_codes, num_symbols, bit_packing.packing(num_symbols))
            return codes.to(_type(num_symbols))
        except ValueError:
            pass  # which is said below
    beside = None if contexts is None else numpy_of(contexts, "codes")
    codes = entropy.decode(numpy_of(data, "codes"), num_codes, num_symbols, "rans", beside, num_contexts)
    return torch.from_numpy(codes.view(np.uint8)).to(data.device).view(_type(num_symbols))


def _type(num_symbols: int) -> torch.dtype:
    return torch.uint8 if num_symbols <= 256 else torch.int16
