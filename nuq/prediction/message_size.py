"""The size in bytes of what a worker sends, from a method's settings alone: ``nuq.compressors`` without torch.

A test holds ``Format.frame_bytes`` to the lengths of real frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nuq.registry import METHODS, method
from nuq.settings import declared
from nuq.settings.quantizers import LEAST_ROTATED

# nuq/compressors/frame.py: the head of a frame and the entry of each of its messages; bodies lie at multiples of 4
_FRAME_HEAD, _ENTRY, _STEP = 12, 16, 4
_BODY_HEAD, _KEY_BYTES = 12, 8  # nuq/compressors/body.py; EDEN's 4 + 8 bytes are as long as a body's head without a key
_PER_BYTE = 5  # ternary codes
CODED_TABLES = 100  # bytes: of the tables that a rANS code of normal coordinates carries, about
DENSE = ("fp32", "bf16")
# Class of a method's arithmetic, for which rates are measured: the constructor of its code tells them apart.
_KINDS = {"qsgd": "uniform", "qsgdinf": "uniform", "trn": "ternary", "ecdq": "lattice"}
_KINDS |= {"eden": "rotated", "drive": "rotated"}
KINDS = ("uniform", "levels", "ternary", "rotated", "lattice", *DENSE)
# code whose rates profiles hold
_MEASURED = tuple(f"nuq.compressors.{name}:" for name in ("full_precision", "quantized", "eden"))


def predicted() -> list[str]:
    """The methods whose arithmetic was measured, and so have a format, in the order of METHODS."""
    return [name for name, entry in METHODS.items() if entry.code.startswith(_MEASURED)]


@dataclass(frozen=True)
class Format:
    """The format of a message.

    kind: one of KINDS; bits: of one code, for a lattice their mean; bucket_size: coordinates that share a scale.
    """

    kind: str
    bits: float
    bucket_size: int = 8192

    def frame_bytes(self, num_coordinates: float, messages: float = 1) -> float:
        """The length of a frame of so many messages, equally long, of this many coordinates together."""
        body = self.body_bytes(math.ceil(num_coordinates / messages))
        return _FRAME_HEAD + messages * (_ENTRY + math.ceil(body / _STEP) * _STEP)

    def body_bytes(self, num_coordinates: int) -> int:
        """The length of the body of a message; bf16 travels as its plain 2 bytes a coordinate."""
        n = num_coordinates
        if self.kind in DENSE:
            return (2 if self.kind == "bf16" else 4) * n
        scales = math.ceil(n / self.bucket_size)
        before = _BODY_HEAD
        if self.kind == "rotated":
            pieces = math.ceil(n / LEAST_ROTATED)
            in_bucket = self.bucket_size // LEAST_ROTATED
            scales = pieces // in_bucket + (pieces % in_bucket).bit_count()  # the rest is cut into powers of two
            n = pieces * LEAST_ROTATED
        elif self.kind == "levels":
            before += 4 * 2 ** int(self.bits)
        elif self.kind == "lattice":
            before += _KEY_BYTES + CODED_TABLES
        codes = math.ceil(n / _PER_BYTE) if self.kind == "ternary" else math.ceil(n * self.bits / 8)
        return before + 4 * scales + codes


def format_of(name: str, bits: float | None = None, bucket_size: int | None = None) -> Format:
    """The format of one of ``predicted()``; ``bits`` and ``bucket_size`` replace those defaults that it has.

    An entropy-coded method is taken to spend the ``bits`` of its setting, which is what normal coordinates take: real
    gradients take fewer.
    """
    chosen = method(name)
    if name not in predicted():
        raise ValueError(f"method {name!r}: no profile holds rates of it (legal: {', '.join(predicted())})")
    if name in ("sgd", "supersgd"):
        return Format("fp32", 32)
    settings = declared(chosen.settings)
    defaults = {key: setting.default for key, setting in settings.items()}
    own_bits = {"trn": 8 / _PER_BYTE, "drive": 1.0}.get(name) or float(defaults["bits"] if bits is None else bits)
    kind = _KINDS.get(name, "levels")
    if "bits" in defaults:
        rule = settings["bits"].rule
        if not rule["low"] <= own_bits <= rule["high"] or (kind != "lattice" and own_bits % 1):
            whole = "" if kind == "lattice" else "a whole number "
            raise ValueError(f"--bits {own_bits:g}: must be {whole}from {rule['low']:g} to {rule['high']:g} for {name}")
    return Format(kind, own_bits, int(defaults["bucket_size"] if bucket_size is None else bucket_size))


def second_format(name: str, bits: float, bucket_size: int | None = None) -> Format:
    """The format in which means are encoded again: the method's own, or that of the one that the table names for it."""
    return format_of(METHODS[name].mean_compressor or name, bits, bucket_size)
