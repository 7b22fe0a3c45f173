// The tree of the specification's step 2: sums by halving, of a power of two of numbers.
#pragma once
#include "../isa.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
// values is overwritten.
inline double halved(double* values, int64_t size) {
    for (int64_t h = size / 2; h > 0; h /= 2)
        for (int64_t i = 0; i < h; ++i) values[i] += values[i + h];
    return values[0];
}

inline int64_t power_of_two(int64_t least) {
    int64_t size = 1;
    while (size < least) size *= 2;
    return size;
}
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
