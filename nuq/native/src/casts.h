// What casts.cpp tells simd/casts.cpp.
#pragma once
#include "isa.h"

namespace nuq {
// the order of nuq/native/casts.py
enum CodeFormat : int { BFLOAT16_CODE = 0, FLOAT16_CODE = 1, NATURAL_CODE = 2, FLOAT8_CODE = 3 };

struct Cast {
    const float* vector;
    int format;
    void* codes;     // uint8 of natural and float8, else uint16
    float scale;     // float16: the vector's factor; natural: what makes the smallest power 1
    uint32_t most;   // of the others: the largest code, its sign aside
    // natural: the exponent field of the smallest power; float8: bits of mantissa, 2 (e5m2) or 3 (e4m3)
    uint32_t least;
    uint32_t k0, k1, own, workers;
};
}  // namespace nuq

// Coordinates [first, last); first is a multiple of 16.
NUQ_DECLARE(void, cast, const Cast& job, int64_t first, int64_t last)
