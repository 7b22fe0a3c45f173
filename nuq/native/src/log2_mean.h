// What log2_mean.cpp tells simd/log2_mean.cpp.
#pragma once
#include "isa.h"

// The sum of the nonzeros' logarithms in units of 2^-16, and their number: of x[0 .. size), see
// nuq/kernels/log2_mean.py.
NUQ_DECLARE(void, log_sum, const float* x, int64_t size, const int32_t* fractions, int64_t& sum, int64_t& count)
