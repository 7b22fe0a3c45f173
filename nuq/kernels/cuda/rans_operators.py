"""The host side of rANS on a GPU: ``rans_encode`` and ``rans_decode`` of ``nuq.coding.entropy_reference``.

Codes, contexts and bytes stay on the device.  The frequencies come from the host, 8 bytes for each symbol of each
context; the sizes of the chunks go to it, 4 bytes for each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nuq.kernels.cuda.launch import Modules, on

_HALF = 14  # as nuq.kernels.cuda.rans.HALF


def rans_encode(
    device: Modules,
    codes: Tensor,
    frequencies: Tensor,
    table_bits: int,
    lanes: int,
    chunk: int,
    contexts: Tensor | None,
) -> tuple[list[int], Tensor]:
    """The number of bytes of every chunk, and the chunks one after another: uint8[bytes].

    codes: uint8[n] or int16[n], contiguous; contexts: uint8[n]; frequencies: int64[num_contexts, num_symbols], on the
    CPU.
    """
    entries = (frequencies - 1) | (frequencies.cumsum(1) - frequencies) << _HALF
    table = torch.where(frequencies > 0, entries, 0).to(torch.int32).reshape(-1).to(codes.device)
    chunks, stride = -(-codes.numel() // chunk), chunk + 2 * lanes
    scratch = torch.empty(chunks, stride, dtype=torch.int16, device=codes.device)
    sizes = torch.empty(chunks, dtype=torch.int32, device=codes.device)
    numbers = (codes.numel(), chunk, stride, frequencies.shape[1], table_bits)
    with on(codes):
        device.rans.encode_kernel[(chunks,)](
            codes,
            codes if contexts is None else contexts,
            table,
            scratch,
            sizes,
            *numbers,
            LANES=lanes,
            CONTEXTS=contexts is not None,
            num_warps=1,
        )
    words = sizes.tolist()
    parts = [scratch[k, stride - size :] for k, size in enumerate(words)]
    return [2 * size for size in words], torch.cat(parts).view(torch.uint8)


def rans_decode(
    device: Modules,
    data: Tensor,
    sizes: list[int],
    num_codes: int,
    frequencies: Tensor,
    table_bits: int,
    lanes: int,
    chunk: int,
    contexts: Tensor | None,
) -> Tensor | None:
    """The codes uint8[num_codes], int16 for more than 256 symbols; None for a chunk that does not end as it began."""
    if any(size < 4 * lanes or size % 2 for size in sizes):
        return None  # a chunk is shorter than its states
    slots, symbols = _slots(frequencies, table_bits, data.device)
    begins = torch.tensor([0, *sizes], dtype=torch.int64, device="cpu").cumsum(0) // 2
    codes = torch.empty(num_codes, dtype=symbols.dtype, device=data.device)
    whole = torch.empty(len(sizes), dtype=torch.int32, device=data.device)
    with on(data):
        device.rans.decode_kernel[(len(sizes),)](
            data.clone().view(torch.int16),  # words that begin at an even address
            begins.to(data.device),
            codes if contexts is None else contexts,
            slots,
            symbols,
            codes,
            whole,
            num_codes,
            chunk,
            table_bits,
            LANES=lanes,
            CONTEXTS=contexts is not None,
            num_warps=1,
        )
    return codes if bool(whole.all()) else None


def _slots(frequencies: Tensor, table_bits: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The entry and the symbol of every slot of every context: int32[num_contexts << table_bits], uint8 or int16."""
    num_contexts, num_symbols = frequencies.shape
    filled = frequencies.clone()
    filled[frequencies.sum(1) == 0, 0] = 1 << table_bits  # of a context that does not occur
    filled = filled.reshape(-1).to(device)
    number = torch.repeat_interleave(filled, output_size=num_contexts << table_bits)
    places = torch.arange(len(number), dtype=torch.int64, device=device) - (filled.cumsum(0) - filled)[number]
    symbols = (number % num_symbols).to(torch.uint8 if num_symbols <= 256 else torch.int16)
    return ((filled[number] - 1) | places << _HALF).to(torch.int32), symbols
