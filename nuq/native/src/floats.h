// What floats.cpp tells simd/floats.cpp.
#pragma once
#include "isa.h"

namespace nuq {
// as nuq/native/floats.py
enum FloatFormat : int {
    FLOAT32_NUMBER = 0,
    BFLOAT16_NUMBER = 1,
    FLOAT16_NUMBER = 2,
    E4M3_NUMBER = 3,
    E5M2_NUMBER = 4
};

struct Floats {
    const uint8_t* numbers;  // one after another, anywhere in memory
    int format;
    float factor;  // of every number
    float* total;
    bool accumulate;
};

struct Errors {
    float* wanted;
    const float* sent;
    float factor, weight;
    float* kept;
};
}  // namespace nuq

// Coordinates [first, last); false where one is not finite, times the factor.
NUQ_DECLARE(bool, read_floats, const Floats& job, int64_t first, int64_t last)
NUQ_DECLARE(void, average_errors, const Errors& job, int64_t first, int64_t last)
