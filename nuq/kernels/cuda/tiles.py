"""Tiles: the part of a vector that one program takes, and its layout in registers."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 1024  # coordinates in one tree of the sum of squares (step 2)
LARGEST = 16384  # coordinates of a bucket that one program holds in registers
TAKEN = 4096  # coordinates that one program should take
# options of every launch: a fused multiply-add rounds once where the specification rounds twice
OPTIONS = {"enable_fp_fusion": False}


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number`` (1 for 0)."""
    return 1 << max(number - 1, 0).bit_length()


@dataclass(frozen=True)
class Tile:
    """A tile: ``rows`` whole buckets of at most ``width`` coordinates, or (``pieces`` > 1) one of a bucket's pieces.

    In registers a tile is [1, R * blocks, K], so that one warp reads K neighbouring coordinates at once and a block of
    1024 (a tree of the norm) stays inside one warp: run r of block b stands at r * blocks + b, and there are as many
    warps as blocks.  In three dimensions, [R, blocks, K], Triton 3.6 spread a block over the warps: 450 shuffles in
    place of 64, and registers spilled.
    """

    rows: int
    width: int
    pieces: int
    programs: int
    run: int  # neighbouring coordinates that one warp reads at once

    @property
    def block(self) -> int:
        return min(self.width, BLOCK)

    @property
    def constants(self) -> dict[str, int]:
        """The compile-time arguments that every kernel over tiles takes."""
        k = min(self.block, self.run)
        return {"ROWS": self.rows, "PIECES": self.pieces, "R": self.block // k, "NB": self.width // self.block, "K": k}

    @property
    def warps(self) -> int:
        """The number of warps, 32 coordinates to a thread: several loads in flight, float64 squares in registers."""
        return min(max(self.rows * self.width // BLOCK, 1), 16)


def tile(num_coordinates: int, bucket_size: int, *, itemsize: int = 4, whole: bool = True) -> Tile:
    """The tiles of a vector; whole: buckets are not cut (a norm is computed), unless they exceed ``LARGEST``."""
    length = min(bucket_size, num_coordinates)
    buckets = -(-num_coordinates // bucket_size)
    width = min(power_of_two(length), LARGEST if whole and length <= LARGEST else TAKEN)
    pieces = -(-length // width)
    rows = 1 if pieces > 1 else min(max(TAKEN // width, 1), power_of_two(buckets))
    return Tile(rows, width, pieces, -(-buckets // rows) * pieces, 512 // itemsize)


def rotation_tile(block: int, size: int, *, tail: bool) -> dict[str, int]:
    """The layout in threads of ``size`` coordinates that are rotated by blocks of ``block``.

    It is [NB, LANES, R, J] of rotate.hadamard_kernel.  The one tail is spread over more warps, as its comparisons need
    registers and nothing waits for it.
    """
    together = min(size, 4)
    lanes = min(size // together, 32)
    row = together * lanes
    parts = 1 if tail else max(block // row, 1)
    return {"R": parts, "NB": size // (row * parts), "LANES": lanes, "J": together}
