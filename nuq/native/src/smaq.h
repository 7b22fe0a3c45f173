// What smaq.cpp tells simd/smaq.cpp.  "The specification" is the docstring of nuq/kernels/smaq.py.
#pragma once
#include "isa.h"

namespace nuq {
constexpr int64_t SMAQ_BLOCK = 4096;  // coordinates in one block
constexpr int64_t SMAQ_SLACK = 64;    // bytes behind a block that a writer may overwrite

// Mirrored in nuq/native/smaq.py.
struct Smaq {
    const void* vector;  // of the encoder; its type is one of quantize.h's
    float* total;        // of the decoder
    const float* table;  // the decoder's 256 values
    int64_t size;        // coordinates
    int32_t dtype, masked, constant, low_bits, extra_bits, stochastic, accumulate;
    float factor, mean, inverse, threshold, small_slope, large_slope, small_most, large_most;
    uint32_t k0, k1, own, workers;
};

struct SmaqBounds {
    float lowest, highest;  // of the nonzeros
    int64_t zeros;
};

// Bytes of a block's parts: ``length`` coordinates of which ``codes`` have codes, ``outliers`` of them long ones.
struct SmaqParts {
    int64_t mask, classes, low, extra;
    SmaqParts(const Smaq& job, int64_t length, int64_t codes, int64_t outliers)
        : mask(job.masked ? (length + 7) / 8 : 0),
          classes(job.constant ? 0 : (codes + 7) / 8),
          low(job.constant ? 0 : (codes * job.low_bits + 7) / 8),
          extra(job.constant ? 0 : (outliers * job.extra_bits + 7) / 8) {}
    int64_t bytes() const { return mask + classes + low + extra; }
};
}  // namespace nuq

// Sums and squares of one block's nonzeros less the pivot; bounds grow.
NUQ_DECLARE(void, smaq_measure, const Smaq& job, int64_t block, double pivot, double& sum, double& squares,
            SmaqBounds& bounds)
// One block's bytes, and where they end; its numbers of codes and of outliers.
NUQ_DECLARE(uint8_t*, smaq_encode, const Smaq& job, int64_t block, uint16_t& codes, uint16_t& outliers, uint8_t* to)
// Whether the bitmaps of one block hold as many codes and outliers as they should.
NUQ_DECLARE(bool, smaq_whole, const Smaq& job, int64_t length, int64_t codes, int64_t outliers, const uint8_t* from)
// One block; ``from`` may be read SMAQ_SLACK bytes beyond its end.
NUQ_DECLARE(void, smaq_decode, const Smaq& job, int64_t block, int64_t codes, int64_t outliers, const uint8_t* from)
