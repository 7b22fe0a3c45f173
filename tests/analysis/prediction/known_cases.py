"""Codecs, a profile, variants and a bucket whose times are known by hand."""

from __future__ import annotations

from nuq.prediction.message_size import KINDS, Format
from nuq.prediction.rates import Bucket, CodecRates, Profile
from nuq.prediction.steps import Variant

MS = 1e-3
# 1 GB/s encodes a million coordinates of 4 bytes in 4 ms.  No call has a price of its own, the network's processor
# hardly any.
FREE = CodecRates(1e12, 1e12)
PLAIN = Profile(
    about="made up",
    shared_core=False,
    cores=1,
    latency_s=1 * MS,
    busy_latency_s=1 * MS,
    message_s=0.0,
    host_gb_s=1e9,
    mean_gb_s=1e9,
    compute_s=0.1,
    codecs={**{kind: CodecRates(1.0, 2.0) for kind in KINDS}, "fp32": FREE, "bf16": FREE},
)
UNIFORM = Variant(Format("uniform", 3, 10**9), Format("uniform", 4, 10**9))  # one scale a message
BF16 = Variant(Format("bf16", 16), Format("bf16", 16))
MILLION = Bucket(10**6, 1.0)
