"""A method of one's own, with error feedback, in a DDP training: the sign of each coordinate and the mean magnitude.

torchrun --nproc-per-node=2 examples/own_method.py
"""

import struct
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import nuq
from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES
from nuq.kernels import bit_packing
from nuq.registry import Method


@dataclass
class ScaledSignSettings:
    """The method has no setting."""


class ScaledSign(Compressor):
    """x -> mean(|x|) sign(x), one bit a coordinate."""

    def encode(self, tensor: torch.Tensor, key: nuq.Key) -> nuq.Message:
        x = tensor.reshape(-1).float()
        scale = float(x.abs().mean()) if x.numel() else 0.0
        if not scale < float("inf"):
            raise nuq.NonFiniteError("the gradient is not finite")
        head = torch.frombuffer(bytearray(struct.pack("<f", scale)), dtype=torch.uint8)
        return nuq.Message(b"SSGN", x.numel(), torch.cat([head, bit_packing.pack_codes((x > 0).int(), 1)]))

    def _decoded(self, message: nuq.Message) -> torch.Tensor:
        (scale,) = struct.unpack("<f", bytes(message.body[:4].numpy()))
        return (2 * bit_packing.unpack_codes(message.body[4:], message.num_coordinates, 2, 1).float() - 1) * scale

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + 4 + bit_packing.packed_bytes(num_coordinates, 1)


nuq.METHODS["scaled_sign"] = Method("Scaled sign", ScaledSignSettings, "__main__:ScaledSign", unbiased=False)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(1000, 100))
state = nuq.CompressionState(model, method="scaled_sign", feedback="error", collective="gather")
model.register_comm_hook(state, nuq.compress_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(64, 1000)).square().mean().backward()
    optimizer.step()
print(f"rank {dist.get_rank()}: {state.bytes_sent} bytes sent where {4 * 100_100 * 20} are the gradients'")
state.close()
dist.destroy_process_group()
