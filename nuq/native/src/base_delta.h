// What base_delta.cpp tells simd/base_delta.cpp.  "The specification" is the docstring of nuq/coding/base_delta.py.
#pragma once
#include "isa.h"

namespace nuq {
constexpr int64_t DELTA_BLOCK = 64;  // words in one block
constexpr int64_t DELTA_SLACK = 8;   // bytes behind a block that a writer may overwrite and a reader may read
constexpr int BASE_KIND = 16, MIXED_KIND = 32;

struct BaseDelta {
    const float* vector;  // of the encoder
    float* total;         // of the decoder
    int64_t size;         // coordinates
    int bits;
    bool stochastic, accumulate;
    uint32_t k0, k1, own, workers;
};
}  // namespace nuq

// Blocks [first, last): their kinds, exponents and bytes, and where these end.
NUQ_DECLARE(uint8_t*, base_delta_encode, const BaseDelta& job, int64_t first, int64_t last, uint8_t* kinds,
            uint8_t* exponents, uint8_t* to)
// One block.
NUQ_DECLARE(void, base_delta_decode, const BaseDelta& job, int64_t block, int kind, int exponent, const uint8_t* from)
