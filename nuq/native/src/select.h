// Selection of coordinates: what simd/select.cpp offers to select.cpp.
#pragma once
#include "isa.h"

namespace nuq {
constexpr uint32_t NOT_FINITE = 0x7f800000u;  // keys from here on are of infinities and of what is not a number
}

// Indices i of [first, last) whose key is at least ``least``, ascending, into ``to`` (room for last - first); their
// number. Magnitudes: the key is the bits of |x[i]|, which rise with |x[i]|; the largest of all keys goes to
// ``largest``.
NUQ_DECLARE(int64_t, collect_magnitudes, const float*, int64_t, int64_t, uint32_t, int32_t*, uint32_t*)
// Hashes: the key is the complement of the random number h of coordinate i (step 6 of nuq/kernels/spec.py).
NUQ_DECLARE(int64_t, collect_hashes, uint32_t, uint32_t, int64_t, int64_t, uint32_t, int32_t*)
NUQ_DECLARE(uint32_t, largest_magnitude, const float*, int64_t, int64_t)
