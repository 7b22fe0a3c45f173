"""Codes as packed bytes: b bits each (1..8), or five ternary codes to a byte.

Code ``i`` of width ``b`` fills bits ``[i*b, (i+1)*b)`` of a little-endian bit stream; five ternary codes are the base-3
digits of one byte, lowest first.  The last byte is padded with zeros.
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8
from torch import Tensor

TERNARY_PER_BYTE = 5
_POWERS_OF_3 = (1, 3, 9, 27, 81)


def code_bits(num_levels: int) -> int:
    """Width of one code in bits (3 levels are packed as five codes to a byte instead)."""
    if not 2 <= num_levels <= 256:
        raise ValueError(f"num_levels={num_levels}: must be between 2 and 256")
    return (num_levels - 1).bit_length()


def packed_size(num_codes: int, num_levels: int) -> int:
    """Bytes of ``num_codes`` packed codes."""
    if num_levels == 3:
        return -(-num_codes // TERNARY_PER_BYTE)
    return -(-num_codes * code_bits(num_levels) // 8)


def pack(codes: UInt8[Tensor, " n"], num_levels: int) -> UInt8[Tensor, " bytes"]:
    """uint8[n] codes below ``num_levels`` -> uint8[packed_size(n)]."""
    size = packed_size(codes.numel(), num_levels)
    if num_levels == 3:
        digits = torch.nn.functional.pad(codes, (0, -codes.numel() % TERNARY_PER_BYTE)).view(-1, TERNARY_PER_BYTE)
        return (digits * digits.new_tensor(_POWERS_OF_3)).sum(dim=1, dtype=torch.int32).to(torch.uint8)
    bits = code_bits(num_levels)
    groups = torch.nn.functional.pad(codes, (0, -codes.numel() % 8)).view(-1, 8)
    words = torch.zeros(groups.shape[0], dtype=torch.int64, device=codes.device)
    for position in range(8):  # eight codes fill b bytes exactly
        words |= groups[:, position].to(torch.int64) << (bits * position)
    packed = torch.stack([(words >> (8 * byte)) & 0xFF for byte in range(bits)], dim=1)
    return packed.to(torch.uint8).reshape(-1)[:size]


def unpack(packed: UInt8[Tensor, " bytes"], num_codes: int, num_levels: int) -> UInt8[Tensor, " n"]:
    """The inverse of ``pack``: uint8[packed_size(n)] -> uint8[n]; ValueError where sizes or codes do not fit."""
    size = packed_size(num_codes, num_levels)
    if packed.numel() != size:
        raise ValueError(f"{packed.numel()} packed bytes: {num_codes} codes of {num_levels} levels take {size}")
    if num_levels == 3:
        if bool((packed > 242).any()):
            raise ValueError("a ternary byte above 242: the codes are damaged")
        digits = torch.stack([(packed // power) % 3 for power in _POWERS_OF_3], dim=1)
        return digits.reshape(-1)[:num_codes]
    bits = code_bits(num_levels)
    groups = torch.nn.functional.pad(packed, (0, -packed.numel() % bits)).view(-1, bits)
    words = torch.zeros(groups.shape[0], dtype=torch.int64, device=packed.device)
    for byte in range(bits):
        words |= groups[:, byte].to(torch.int64) << (8 * byte)
    mask = (1 << bits) - 1
    codes = torch.stack([(words >> (bits * position)) & mask for position in range(8)], dim=1)
    codes = codes.to(torch.uint8).reshape(-1)[:num_codes]
    if num_levels != 1 << bits and bool((codes >= num_levels).any()):
        raise ValueError(f"a code of {num_levels} or more among {num_levels} levels: the codes are damaged")
    return codes
