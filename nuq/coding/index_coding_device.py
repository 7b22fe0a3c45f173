"""Index coding of indices that lie on a GPU: the bytes of ``nuq.coding.index_coding``, by Triton's kernels.

Indices and bytes stay on the device.  What the host reads: sizes, a histogram of classes (32 kB) where rANS may be the
smallest form, and what ``nuq.coding.entropy_device`` says.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from nuq.coding import entropy_device
from nuq.coding.index_forms import (
    BITMAP,
    BLOCK,
    INT32,
    MANTISSA,
    MAX_CONTEXTS,
    NUM_CLASSES,
    OTHERS,
    RANS,
    RICE,
    estimated_bytes,
    options_of,
    sampled_every,
)
from nuq.kernels.cuda.indices_operators import IndexKernels
from nuq.kernels.cuda.launch import Modules


def encode(device: Modules, indices: Tensor, n: int, form: str) -> Tensor:
    """The bytes of ``index_coding.encode``, on the device of the indices: ascending, int32[k], 0 < k < n."""
    return _encode(IndexKernels(device, BLOCK, MANTISSA, MAX_CONTEXTS), indices.contiguous(), n, form)


def decode(device: Modules, data: Tensor, k: int, n: int) -> Tensor | None:
    """The indices int32[k], ascending, below n, 0 < k < n; None for bytes that are not a whole encoding of them."""
    return _decode(IndexKernels(device, BLOCK, MANTISSA, MAX_CONTEXTS), data.contiguous(), k, n)


def _encode(kernels: IndexKernels, indices: Tensor, n: int, form: str) -> Tensor:
    k, near = indices.numel(), indices.device
    options = options_of(form, k, n)
    if form in ("auto", "delta"):
        if 16 * (n - k) < n:
            others = _encode(kernels, _others(kernels, indices, n), n, form)
            if others.numel() < min(options_of("auto", k, n).values()):
                return torch.cat([_byte(OTHERS, near), others])
        rice = kernels.rice(indices)
        low_bits, unary_bits, smallest = torch.stack(
            [rice.low_bits.sum(), rice.unary_bits.sum(), rice.parameters.min()]
        ).tolist()
        options[RICE] = rice.parameters.numel() + -(-low_bits // 8) + -(-unary_bits // 8)
        best = min(options, key=lambda option: (options[option], option))
        every = sampled_every(k)
        if every and _estimate(kernels, indices, rice.parameters, smallest, every) < options[best]:
            coded = _encode_rans(kernels, indices, rice.parameters, smallest)
            if coded.numel() - 1 < options[best]:
                return coded
        if best == RICE:
            parts = kernels.write_rice(indices, rice, low_bits, unary_bits)
            return torch.cat([_byte(RICE, near), rice.parameters, *parts])
    else:
        (best,) = options
    if best == INT32:
        return torch.cat([_byte(INT32, near), indices.view(torch.uint8)])
    return torch.cat([_byte(BITMAP, near), kernels.set_bits(indices, n)])


def _decode(kernels: IndexKernels, data: Tensor, k: int, n: int) -> Tensor | None:
    indices = _of_form(kernels, int(data[0]), data[1:], k, n)
    if indices is None:
        return None
    legal = (indices[0] >= 0) & (indices[-1].long() < n) & (indices[1:] > indices[:-1]).all()
    return indices.to(torch.int32) if bool(legal) else None


def _of_form(kernels: IndexKernels, form: int, body: Tensor, k: int, n: int) -> Tensor | None:
    """The indices [k], if they are any; None for another number of them."""
    if form == INT32 and body.numel() == 4 * k:
        return body.clone().view(torch.int32)
    if form == BITMAP and body.numel() == -(-n // 8):
        return kernels.find_bits(body, k)
    if form == RICE:
        return _decode_rice(kernels, body, k, n)
    if form == RANS:
        return _decode_rans(kernels, body, k, n)
    if form == OTHERS and 2 * k > n and body.numel():
        others = _decode(kernels, body, n - k, n)
        return None if others is None else _others(kernels, others, n)
    return None


def _byte(value: int, near: torch.device) -> Tensor:
    return torch.full((1,), value, dtype=torch.uint8, device=near)


def _others(kernels: IndexKernels, indices: Tensor, n: int) -> Tensor:
    """The indices below n that are not among these: int32."""
    bitmap = ~kernels.set_bits(indices, n)
    bitmap[-1] &= 0xFF >> (-n % 8)
    others = kernels.find_bits(bitmap, n - indices.numel())
    assert others is not None
    return others


# --- Rice ---------------------------------------------------------------------------------------------------------


def _decode_rice(kernels: IndexKernels, body: Tensor, k: int, n: int) -> Tensor | None:
    blocks = -(-k // BLOCK)
    if body.numel() <= blocks:
        return None
    parameters = body[:blocks]
    low_bits = parameters.long() * BLOCK
    low_bits[-1] = parameters[-1].long() * ((k - 1) % BLOCK + 1)
    largest, total = torch.stack([parameters.max(), low_bits.sum()]).tolist()
    low, unary = body[blocks:].tensor_split([-(-total // 8)])
    if largest > 31 or not unary.numel() or not int(unary[-1]):
        return None
    ones = kernels.find_bits(unary, k)
    return None if ones is None else kernels.read(ones, parameters, low_bits, low, n)


# --- rANS ---------------------------------------------------------------------------------------------------------


def _by_gap(of_blocks: Tensor, k: int) -> Tensor:
    return of_blocks.repeat_interleave(BLOCK)[:k]


def _estimate(kernels: IndexKernels, indices: Tensor, parameters: Tensor, smallest: int, every: int) -> int:
    """The approximate bytes of rANS, from a sample of the blocks."""
    sample = kernels.classes(indices, parameters, smallest, every)
    pairs = sample.classes + sample.contexts.to(torch.int32) * NUM_CLASSES
    counts = torch.bincount(pairs, minlength=NUM_CLASSES * MAX_CONTEXTS).cpu().numpy()
    sizes = int(sample.low_bits.sum()), parameters.numel(), pairs.numel(), indices.numel()
    return estimated_bytes(counts.reshape(MAX_CONTEXTS, NUM_CLASSES), *sizes)


def _encode_rans(kernels: IndexKernels, indices: Tensor, parameters: Tensor, smallest: int) -> Tensor:
    found = kernels.classes(indices, parameters, smallest)
    coded = entropy_device.encode(kernels.device, found.classes, NUM_CLASSES, found.contexts, MAX_CONTEXTS)
    size = torch.from_numpy(np.array([coded.numel()], dtype="<u4").view(np.uint8)).to(indices.device)
    of_blocks = found.contexts[::BLOCK]
    paired = pad(of_blocks, (0, of_blocks.numel() % 2)).view(-1, 2)
    nibbles = paired[:, 0] | paired[:, 1] << 4
    low = kernels.write_low(indices, found.low_bits, int(found.low_bits.sum()))
    return torch.cat([_byte(RANS, indices.device), nibbles, size, coded, low])


def _decode_rans(kernels: IndexKernels, body: Tensor, k: int, n: int) -> Tensor | None:
    blocks = -(-k // BLOCK)
    start = -(-blocks // 2)
    if body.numel() < start + 4:
        return None
    contexts = torch.stack([body[:start] & 15, body[:start] >> 4], dim=1).reshape(-1)[:blocks]
    size = int(body[start : start + 4].cpu().numpy().view("<u4")[0])
    coded, low = body[start + 4 :].tensor_split([size])
    classes = entropy_device.decode(kernels.device, coded, k, NUM_CLASSES, _by_gap(contexts, k), MAX_CONTEXTS)
    low_bits = kernels.low_bits_of(classes)
    if low.numel() != -(-int(low_bits.sum()) // 8):
        return None
    return kernels.read(classes, None, low_bits, low, n)
