// What planes.cpp tells simd/planes.cpp.  "The specification" is the docstring of nuq/coding/planes.py.
#pragma once
#include "isa.h"

namespace nuq {
constexpr int64_t PLANE_BLOCK = 128;  // numbers that share one top
constexpr uint8_t ZERO_GAP = 255;     // of an exponent that is 0
}  // namespace nuq

// One block of ``count`` numbers of 16 bits; the number of those whose exponent is 0.
NUQ_DECLARE(int, split_planes, const uint16_t* numbers, int count, uint8_t* top, uint8_t* gaps, uint8_t* rests)
NUQ_DECLARE(void, join_planes, const uint8_t* top, const uint8_t* gaps, const uint8_t* rests, int count,
            uint16_t* numbers)
