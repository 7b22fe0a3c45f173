// The specification's random number of element i (step 6 of nuq/kernels/spec.py).  ``static``: every instruction set
// keeps its own copy.
#pragma once
#include <cstdint>

constexpr uint32_t MIX_1 = 0x7feb352d, MIX_2 = 0x846ca68b;

static inline uint32_t random_number(uint32_t i, uint32_t k0, uint32_t k1) {
    uint32_t h = i ^ k0;
    h ^= h >> 16;
    h *= MIX_1;
    h ^= h >> 15;
    h ^= k1;
    h *= MIX_2;
    return h ^ h >> 16;
}
