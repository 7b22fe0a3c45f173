"""The body of a message of quantized buckets: what a receiver needs to decode it, and nothing else.

::

    bucket size uint32, number of levels uint16, flags uint8, coder uint8, log2 of the rotation's block uint8, 3 zeros
    k0, k1 uint32          where the values were rotated or dithered: the receiver repeats the sender's random numbers
    levels float32[L]      unless they are equally spaced
    scales float32         one per bucket, two under quantile normalisation
    codes                  packed (``nuq.kernels.bit_packing``) or entropy coded (``nuq.coding.entropy``); rANS codes
                           of 2^14 dithered coordinates or more may have the dither's leading bits as context, which
                           saves up to .05 bits each

For n coordinates, b bits and buckets of d, packed, that makes ``28 + 12 + 4*2^b + 4*ceil(n/d) + ceil(n*b/8)`` bytes,
header included.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from nuq.coding import entropy, entropy_device
from nuq.compressors.message import Message, finite, from_bytes, raw
from nuq.errors import MessageError
from nuq.kernels import bit_packing, operators, spec
from nuq.kernels.cuda.launch import Modules, device_code
from nuq.kernels.host import numpy_of
from nuq.kernels.spec import Words
from nuq.levels import level_sets

CODINGS = ("packed", *entropy.CODERS)
_FIXED = struct.Struct("<IHBBB3x")
_WORDS = struct.Struct("<II")
CONTEXT_BITS, _CONTEXTS_FROM = 3, 1 << 14  # fewer coordinates cannot make up for eight tables
ON_DEVICE_FROM: Final = 1 << 22  # codes: fewer are coded sooner by the processor (results/gpu, the step entropy)
_UNIFORM, _TWO_SCALES, _DITHERED = 1, 2, 4


def entropy_coded(
    codes: Tensor, num_symbols: int, coder: str, contexts: Tensor | None = None, num_contexts: int = 1
) -> Tensor:
    """Codes in raw form (``bit_packing.raw_packing``), entropy coded: uint8[bytes].

    On a GPU rANS of ON_DEVICE_FROM codes or more stays there; what the processor codes is returned on the CPU.
    """
    size = 1 if num_symbols <= 256 else 2
    device = _coding_device(codes, coder, codes.numel() // size)
    if device is not None:
        own = codes.contiguous() if size == 1 else codes.contiguous().view(torch.int16)
        return entropy_device.encode(device, own, num_symbols, contexts, num_contexts)
    symbols = numpy_of(codes, "codes").view(entropy.code_type(num_symbols))
    beside = None if contexts is None else numpy_of(contexts, "codes")
    threads = torch.get_num_threads()
    return torch.from_numpy(entropy.encode(symbols, num_symbols, coder, beside, num_contexts, threads))


def entropy_decoded(
    data: Tensor,
    num_codes: int,
    num_symbols: int,
    coder: str,
    contexts: Tensor | None = None,
    num_contexts: int = 1,
) -> Tensor:
    """The inverse of ``entropy_coded``: the bytes uint8 of the codes, on the device of the data."""
    device = _coding_device(data, coder, num_codes)
    if device is not None:
        return entropy_device.decode(device, data, num_codes, num_symbols, contexts, num_contexts).view(torch.uint8)
    beside = None if contexts is None else numpy_of(contexts, "codes")
    threads = torch.get_num_threads()
    codes = entropy.decode(numpy_of(data, "codes"), num_codes, num_symbols, coder, beside, num_contexts, threads)
    return torch.from_numpy(codes.view("uint8")).to(data.device)


def _coding_device(data: Tensor, coder: str, num_codes: int) -> Modules | None:
    """The device code, where the data lie on a GPU, the coder has kernels for it, and they are quicker."""
    return device_code() if data.is_cuda and coder == "rans" and num_codes >= ON_DEVICE_FROM else None


@dataclass(frozen=True)
class Layout:
    """The layout of a body: everything about it but its levels, scales and codes."""

    num_coordinates: int
    bucket_size: int
    num_levels: int
    uniform: bool
    two_scales: bool
    dither: bool
    coder: str
    block: int  # of the Hadamard rotation, 1: none
    words: Words = (0, 0)  # of the sender's key, where something needs them

    @property
    def keyed(self) -> bool:
        return self.dither or self.block > 1

    @property
    def num_scales(self) -> int:
        return spec.num_buckets(self.num_coordinates, self.bucket_size) * (2 if self.two_scales else 1)

    @property
    def packing(self) -> int:
        """The packing in which the operators write and read codes: packed, or raw where an entropy coder follows."""
        return (bit_packing.packing if self.coder == "packed" else bit_packing.raw_packing)(self.num_levels)

    @property
    def levels_at(self) -> int:
        return _FIXED.size + (_WORDS.size if self.keyed else 0)

    @property
    def scales_at(self) -> int:
        return self.levels_at + (0 if self.uniform else 4 * self.num_levels)

    @property
    def codes_at(self) -> int:
        return self.scales_at + 4 * self.num_scales

    def body_bytes(self) -> int:
        """The length of a packed body, or the largest length of an entropy-coded one."""
        n = self.num_coordinates
        packed = bit_packing.packed_bytes(n, bit_packing.packing(self.num_levels))
        return self.codes_at + (packed if self.coder == "packed" else entropy.encoded_bound(n, self.num_levels))

    def head(self) -> Tensor:
        """The bytes before the levels, on the CPU."""
        flags = _UNIFORM * self.uniform | _TWO_SCALES * self.two_scales | _DITHERED * self.dither
        coder, log_block = CODINGS.index(self.coder), self.block.bit_length() - 1
        words = _WORDS.pack(*self.words) if self.keyed else b""
        return raw(_FIXED.pack(self.bucket_size, self.num_levels, flags, coder, log_block) + words)

    @classmethod
    def read(cls, message: Message, tag: bytes) -> Layout:
        """The layout that a message states; MessageError where its body cannot be of this family."""
        body = message.body
        message.check_tag(tag, _FIXED.size, "of this family")
        head = bytes(body[: _FIXED.size + _WORDS.size].cpu().numpy())
        bucket_size, num_levels, flags, coder, log_block = _FIXED.unpack(head[: _FIXED.size])
        known = flags <= 7 and coder < len(CODINGS) and log_block <= 31
        if bucket_size < 1 or not 2 <= num_levels <= bit_packing.MAX_LEVELS or not known:
            raise MessageError(f"bucket size {bucket_size}, {num_levels} levels, flags {flags}, coder {coder}: damaged")
        switches = (bool(flags & _UNIFORM), bool(flags & _TWO_SCALES), bool(flags & _DITHERED))
        layout = cls(message.num_coordinates, bucket_size, num_levels, *switches, CODINGS[coder], 1 << log_block)
        longest = layout.body_bytes()
        if not (longest if layout.coder == "packed" else layout.codes_at) <= body.numel() <= longest:
            raise MessageError(f"{body.numel()} bytes where {message.num_coordinates} such coordinates take {longest}")
        if layout.dither and not layout.uniform:
            raise MessageError("dither without equally spaced levels: damaged")
        return replace(layout, words=_WORDS.unpack(head[_FIXED.size :])) if layout.keyed else layout

    def levels(self, body: Tensor) -> Tensor:
        """The levels that the body holds or implies: float32[num_levels]."""
        if self.uniform:
            values = level_sets.equally_spaced(self.num_levels).values
            return torch.tensor(values, dtype=torch.float32, device=body.device)
        levels = finite(from_bytes(body[self.levels_at : self.scales_at], torch.float32), "level")
        if float(levels.abs().amax()) > 1:
            raise MessageError("a level beyond -1 and 1: damaged")
        return levels

    def scales(self, body: Tensor) -> Tensor:
        """The scales that the body holds: float32[num_scales]."""
        return finite(from_bytes(body[self.scales_at : self.codes_at], torch.float32), "scale")

    def _contexts(self, device: torch.device) -> dict[str, Any]:
        """The contexts that the entropy coder is given beside the codes, which are on this device."""
        if self.coder != "rans" or not self.dither or self.num_coordinates < _CONTEXTS_FROM:
            return {}
        bits = operators.leading_bits(self.num_coordinates, self.words, CONTEXT_BITS, device)
        return {"contexts": bits, "num_contexts": 1 << CONTEXT_BITS}

    def coded(self, codes: Tensor) -> Tensor:
        """Entropy coding of raw codes in this layout's ``packing``: uint8 bytes."""
        return entropy_coded(codes, self.num_levels, self.coder, **self._contexts(codes.device))

    def codes(self, body: Tensor) -> Tensor:
        """The codes of a body in this layout's ``packing``: uint8 bytes."""
        data = body[self.codes_at :]
        if self.coder == "packed":
            return data
        return entropy_decoded(data, self.num_coordinates, self.num_levels, self.coder, **self._contexts(data.device))
