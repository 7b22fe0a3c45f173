"""SGD and SuperSGD: uncompressed float32.  The body is the 4n bytes of the vector."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from nuq.compressors import floats
from nuq.compressors.compressor import InPlace, Write
from nuq.compressors.frame import Frame, Pieces, told
from nuq.compressors.message import HEADER_BYTES, Message
from nuq.kernels import selection
from nuq.kernels.spec import Key

TAG = b"FP32"


class FullPrecision(InPlace):
    """The uncompressed method: 32 bits per coordinate, and a header."""

    def __init__(self, settings: Any = None) -> None:
        del settings

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a gradient by one copy, whose fresh memory limits the speed; NonFiniteError for one not finite."""
        del key
        message = Message.room_for(TAG, vector.numel(), 4 * vector.numel(), vector.device)
        sent = message.body.view(torch.float32)
        sent.copy_(vector.reshape(-1))
        selection.check_finite(sent)
        return message

    def encode_pieces(self, vector: Tensor, pieces: Pieces, key: Key, frame: Frame) -> None:
        for number, piece, _ in pieces.each(vector, key, shaped=False):
            sent = frame.body(number).view(torch.float32)
            sent.copy_(piece)
            with told(number):
                selection.check_finite(sent)
        frame.tag(pieces.numbers, TAG)

    def _opened(self, message: Message) -> Write:
        message.check_whole(TAG, 4 * message.num_coordinates, "4 bytes")
        return partial(floats.read_, message.body, torch.float32)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + 4 * num_coordinates
