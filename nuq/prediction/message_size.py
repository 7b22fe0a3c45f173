"""The size in bytes of what a worker sends, without torch: from a method's settings alone, or as it was measured.

A test holds ``Format.frame_bytes`` to the lengths of real frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
# code whose messages have a formula here
_BY_FORMULA = tuple(f"nuq.compressors.{name}:" for name in ("full_precision", "quantized", "eden"))
FACTORED = "powersgd"  # its factors travel, not messages
SPARSE_MEANS = "nonzero"  # the method that encodes the means of messages of some coordinates
_DENSEST = 4 + 1 / 8  # bytes a coordinate, at most, of a sparse mean: a float32 and a bit


def by_formula(name: str) -> bool:
    """Whether the lengths of a method's messages follow from its settings alone, by ``Format``."""
    return METHODS[name].code.startswith(_BY_FORMULA)


def predicted(measured: Iterable[str] = ()) -> list[str]:
    """The methods that have a format, in the order of METHODS; measured: those whose lengths a profile holds."""
    also = {FACTORED, "bf16", *measured}
    return [name for name in METHODS if by_formula(name) or name in also]


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


@dataclass(frozen=True)
class MeasuredFormat:
    """The format of messages whose lengths were measured, in bytes a coordinate, a message and a frame.

    kind: the method, whose rates have its name.  sparse: a mean holds the coordinates of all its messages.
    """

    kind: str
    coordinate_bytes: float
    message_bytes: float = 0.0
    head_bytes: float = 0.0
    sparse: bool = False

    def frame_bytes(self, num_coordinates: float, messages: float = 1) -> float:
        """The length of a frame of so many messages of this many coordinates together."""
        return self.head_bytes + messages * self.message_bytes + num_coordinates * self.coordinate_bytes

    def of_mean(self, workers: int) -> MeasuredFormat:
        """The format of the mean of so many workers' messages."""
        together = min(workers * self.coordinate_bytes, _DENSEST) if self.sparse else self.coordinate_bytes
        return replace(self, coordinate_bytes=together)


@dataclass(frozen=True)
class Factors:
    """The format of PowerSGD's factors of square matrices, one to a message, in float32."""

    rank: int
    kind: str = FACTORED

    def frame_bytes(self, num_coordinates: float, messages: float = 1) -> float:
        """The bytes of both factors of so many equal matrices of this many coordinates together."""
        return 4 * 2 * self.rank * math.sqrt(num_coordinates * messages)


AnyFormat = Format | MeasuredFormat | Factors


def format_of(
    name: str,
    bits: float | None = None,
    bucket_size: int | None = None,
    measured: Mapping[str, MeasuredFormat] | None = None,
) -> AnyFormat:
    """The format of one of ``predicted(measured)``.

    ``bits`` and ``bucket_size`` replace those defaults that a method by formula has; PowerSGD has its default rank, and
    a measured method the settings that it was measured with.  An entropy-coded method by formula is taken to spend the
    ``bits`` of its setting, which is what normal coordinates take: real gradients take fewer.
    """
    chosen, measured = method(name), measured or {}
    if name not in predicted(measured):
        raise ValueError(f"method {name!r}: no profile holds rates of it (legal: {', '.join(predicted(measured))})")
    if name in ("sgd", "supersgd"):
        return Format("fp32", 32)
    if name == "bf16":
        return Format("bf16", 16)
    if name == FACTORED:
        return Factors(declared(chosen.settings)["rank"].default)
    if not by_formula(name):
        return measured[name]
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


def second_format(
    name: str,
    bits: float,
    bucket_size: int | None = None,
    measured: Mapping[str, MeasuredFormat] | None = None,
) -> AnyFormat:
    """The format in which means are encoded again: the method's own, or that of the one that the table names for it."""
    of_means = METHODS[name].mean_compressor or name
    if of_means == SPARSE_MEANS:
        own = format_of(name, measured=measured)
        assert isinstance(own, MeasuredFormat)
        return replace(own, kind=SPARSE_MEANS, sparse=True)
    return format_of(of_means, bits, bucket_size, measured)
