"""CRC-32 of bytes on a GPU: the value of ``zlib.crc32``, without a copy to the host.

The checksum is a polynomial over GF(2), 32 bits at a time: each of L lanes takes every L-th word, steps from one of
its words to the next by a product with x^(32 L), that is four look-ups, and in the end multiplies by x^(32 (L - lane)),
after which the exclusive or of the lanes is the checksum.
"""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

POLYNOMIAL = tl.constexpr(0xEDB88320)  # zlib's, the coefficient of x^0 in the highest bit


@triton.jit(do_not_specialize=["num_bytes", "rounds", "start"])
def crc_kernel(data, tables, powers, out, num_bytes, rounds, start, SIZE: tl.constexpr):
    """The part of the checksum that this program's lanes have: uint32, as int32, whose exclusive or is the checksum.

    The last word ends with the last byte; zeros before the first byte change nothing.
    """
    lane = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    lanes = tl.num_programs(0) * SIZE
    before = rounds.to(tl.int64) * lanes * 4 - num_bytes
    state = tl.zeros((SIZE,), tl.uint32)
    for number in range(rounds):
        at = (tl.cast(number, tl.int64) * lanes + lane) * 4 - before
        word = tl.zeros((SIZE,), tl.uint32)
        stepped = tl.zeros((SIZE,), tl.uint32)
        for byte in tl.static_range(4):
            value = tl.load(data + at + byte, mask=at + byte >= 0, other=0).to(tl.uint32)
            if number < 2:
                first = (at + byte >= 0) & (at + byte < 4)
                place = tl.minimum(tl.maximum(at + byte, 0), 3).to(tl.uint32)
                own = (start.to(tl.uint32, bitcast=True) >> (8 * place)) & 0xFF
                value ^= tl.where(first, own, 0)
            word |= value << (8 * byte)
            entry = ((state >> (8 * byte)) & 0xFF).to(tl.int32) + 256 * byte
            stepped ^= tl.load(tables + entry).to(tl.uint32, bitcast=True)
        state = stepped ^ word
    power = tl.load(powers + lane).to(tl.uint32, bitcast=True)
    product = tl.zeros((SIZE,), tl.uint32)
    for bit in tl.static_range(32):
        product ^= tl.where(((power >> (31 - bit)) & 1) != 0, state, 0)
        state = (state >> 1) ^ tl.where((state & 1) != 0, POLYNOMIAL, 0).to(tl.uint32)
    tl.store(out + tl.program_id(0), tl.xor_sum(product.to(tl.int32, bitcast=True), axis=0))


def _times(a: Tensor, b: Tensor) -> Tensor:
    """The products of polynomials modulo POLYNOMIAL: of int64 below 2^32, of shapes that broadcast."""
    product = torch.zeros(torch.broadcast_shapes(a.shape, b.shape), dtype=torch.int64, device="cpu")
    for bit in range(31, -1, -1):
        product ^= ((a >> bit) & 1) * b
        b = (b >> 1) ^ ((b & 1) * POLYNOMIAL.value)
    return product


@cache
def constants(device: torch.device, lanes: int) -> tuple[Tensor, Tensor]:
    """The tables of a step, int32[4 * 256], and every lane's last factor, int32[lanes] (a power of two)."""
    x16 = torch.tensor([1 << 15], dtype=torch.int64, device="cpu")
    powers = _times(x16, x16)
    while len(powers) < lanes:
        powers = torch.cat([powers, _times(powers, powers[-1:])])
    byte, place = (torch.arange(count, dtype=torch.int64, device="cpu") for count in (256, 4))
    values = byte << (8 * place[:, None])
    tables = _times(values.reshape(-1), powers[-1:])
    return tables.to(torch.int32).to(device), powers.flip(0).to(torch.int32).to(device)
