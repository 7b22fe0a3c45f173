"""Packing of codes into bytes: b bits each, or five ternary codes to a byte.

A packing is a number: 0 for ternary, else the bits of one code.  Code ``i`` of width ``b`` fills bits
``[i*b, (i+1)*b)`` of a little-endian bit stream; five ternary codes are the base-3 digits of one byte, lowest first.
The last byte is padded with zeros.
"""

from __future__ import annotations

import torch
from jaxtyping import Int32, Integer, UInt8
from torch import Tensor

TERNARY = 0  # the packing of three levels
MAX_LEVELS = 512
_PER_BYTE = 5
_POWERS_OF_3 = (1, 3, 9, 27, 81)


def code_bits(num_levels: int) -> int:
    """The number of bits that tell ``num_levels`` codes apart."""
    if not 2 <= num_levels <= MAX_LEVELS:
        raise ValueError(f"num_levels={num_levels}: must be between 2 and {MAX_LEVELS}")
    return (num_levels - 1).bit_length()


def packing(num_levels: int) -> int:
    """The densest packing of codes below ``num_levels``."""
    return TERNARY if num_levels == 3 else code_bits(num_levels)


def raw_packing(num_levels: int) -> int:
    """The packing whose bytes are the codes themselves, as uint8 or little-endian uint16."""
    return 8 if num_levels <= 256 else 16


def packed_bytes(num_codes: int, packing: int) -> int:
    """The number of bytes of ``num_codes`` packed codes."""
    return -(-num_codes // _PER_BYTE) if packing == TERNARY else -(-num_codes * packing // 8)


def check_packing(packing: int, num_codes: int = 0) -> None:
    """Check a packing: ValueError unless it is one, and holds ``num_codes`` different codes."""
    if not 0 <= packing <= 16:
        raise ValueError(f"packing={packing}: must be between 0 and 16")
    if num_codes > (3 if packing == TERNARY else 1 << packing):
        raise ValueError(f"packing={packing}: does not hold {num_codes} levels")


def check_size(packed: UInt8[Tensor, " bytes"], num_codes: int, packing: int) -> None:
    """Check a size: ValueError unless there are as many bytes as ``num_codes`` codes take."""
    size = packed_bytes(num_codes, packing)
    if packed.numel() != size:
        raise ValueError(f"{packed.numel()} packed bytes: {num_codes} codes take {size}")


def pack_codes(codes: Integer[Tensor, " n"], packing: int) -> UInt8[Tensor, " bytes"]:
    """Pack codes [n] of any integer type, each within the packing, into uint8[packed_bytes(n, packing)]."""
    size = packed_bytes(codes.numel(), packing)
    if packing == TERNARY:
        digits = torch.nn.functional.pad(codes.to(torch.uint8), (0, -codes.numel() % _PER_BYTE)).view(-1, _PER_BYTE)
        return (digits * digits.new_tensor(_POWERS_OF_3)).sum(dim=1, dtype=torch.int32).to(torch.uint8)
    if packing == 8:
        return codes.to(torch.uint8)
    if packing > 8:  # a 64-bit word holds fewer than eight codes: bit by bit
        bits = (codes.to(torch.int32)[:, None] >> torch.arange(packing, device=codes.device, dtype=torch.int32)) & 1
        bits = torch.nn.functional.pad(bits.reshape(-1), (0, 8 * size - bits.numel())).view(-1, 8)
        return (bits << torch.arange(8, device=codes.device, dtype=torch.int32)).sum(dim=1).to(torch.uint8)
    groups = torch.nn.functional.pad(codes, (0, -codes.numel() % 8)).view(-1, 8)
    words = torch.zeros(groups.shape[0], dtype=torch.int64, device=codes.device)
    for position in range(8):  # eight codes fill b bytes exactly
        words |= groups[:, position].to(torch.int64) << (packing * position)
    packed = torch.stack([(words >> (8 * byte)) & 0xFF for byte in range(packing)], dim=1)
    return packed.to(torch.uint8).reshape(-1)[:size]


def unpack_codes(packed: UInt8[Tensor, " bytes"], num_codes: int, num_levels: int, packing: int) -> Int32[Tensor, " n"]:
    """The inverse of ``pack_codes``: int32[num_codes]. ValueError where sizes do not fit or a code is no level's."""
    check_size(packed, num_codes, packing)
    codes = _unpacked(packed, packing)[:num_codes]
    if bool((codes >= num_levels).any()) or (packing == TERNARY and bool((packed > 242).any())):
        raise ValueError(f"a code beyond {num_levels} levels: the codes are damaged")
    return codes


def _unpacked(packed: UInt8[Tensor, " bytes"], packing: int) -> Int32[Tensor, " codes"]:
    if packing == TERNARY:
        return torch.stack([(packed // power) % 3 for power in _POWERS_OF_3], dim=1).reshape(-1).to(torch.int32)
    if packing == 8:
        return packed.to(torch.int32)
    if packing > 8:
        bits = (packed[:, None].to(torch.int32) >> torch.arange(8, device=packed.device, dtype=torch.int32)) & 1
        bits = bits.reshape(-1)[: 8 * packed.numel() // packing * packing].view(-1, packing)
        return (bits << torch.arange(packing, device=packed.device, dtype=torch.int32)).sum(dim=1).to(torch.int32)
    groups = torch.nn.functional.pad(packed, (0, -packed.numel() % packing)).view(-1, packing)
    words = torch.zeros(groups.shape[0], dtype=torch.int64, device=packed.device)
    for byte in range(packing):
        words |= groups[:, byte].to(torch.int64) << (8 * byte)
    mask = (1 << packing) - 1
    codes = torch.stack([(words >> (packing * position)) & mask for position in range(8)], dim=1)
    return codes.to(torch.int32).reshape(-1)
