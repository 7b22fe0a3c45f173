// What the entry points of quantize.cpp tell the kernels of simd/: one record per call, and functions of ranges of it.
// "The specification" is the docstring of nuq/kernels/operators.py, with its steps.
#pragma once
#include "isa.h"

namespace nuq {
enum Dtype : int { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };
enum Norm : int { L2 = 0, LINF = 1, RMS = 2, QUANTILE = 3 };  // the order of ops.NORMS

constexpr int64_t BLOCK = 1024;  // coordinates in one tree of the sum of squares
// coordinates whose codes wait in L1 to be packed; in every packing a whole number of bytes
constexpr int64_t CHUNK = 1280;
constexpr int64_t SMALL_BUCKET = 1 << 17;  // up to this many coordinates (a power of two), one thread measures a bucket
constexpr int LANES = 64;        // the most lanes of the quantile norm
constexpr int MOST_LEVELS = 512;
constexpr int TERNARY = 0;

static inline int64_t byte_of(int64_t coordinate, int packing) {  // of a coordinate that begins one
    return packing == TERNARY ? coordinate / 5 : coordinate * packing / 8;
}

struct LevelTables;

struct Encode {
    const void* vector;
    int dtype;
    int64_t size, bucket;  // coordinates, and coordinates in a bucket
    int norm, lanes;
    float multiple;
    float* scales;  // one per bucket, two under quantile
    // Only the scales are wanted where packed is null.
    uint8_t* packed;
    int packing;
    const LevelTables* levels;  // null: equally spaced
    int num_levels;
    bool stochastic;
    uint32_t k0, k1;
    uint32_t own, workers;  // of those that round together; one: it is by itself
};

struct Decode {
    const uint8_t* packed;
    int packing;
    const float* scales;
    bool tops;  // two scales per bucket
    const float* levels;
    int num_levels;
    float* total;
    int64_t size, bucket;
    bool accumulate, dither;
    uint32_t k0, k1;
    float factor;  // of every value
};

// wanted = vector + kept
struct Sum {
    const void* vector;
    int dtype;
    const float* kept;
    float* wanted;
};

// What is known of a part of a bucket: the largest |x| (as bits) of the coordinates i = j mod 64.
struct Maxima {
    uint32_t of[LANES];
};
}  // namespace nuq

// Coordinates [first, last).
NUQ_DECLARE(void, add_kept, const Sum& job, int64_t first, int64_t last)
// Scales of buckets [first, last), from their coordinates.
NUQ_DECLARE(void, scale_buckets, const Encode& job, int64_t first, int64_t last)
// The parts of one large bucket: sums of squares of its blocks (for l2 and rms) and maxima (for the others) of blocks
// [first, last).
NUQ_DECLARE(void, measure, const Encode& job, int64_t bucket, int64_t first, int64_t last, double* sums, Maxima& maxima)
// The scale of one bucket from its parts; sums is overwritten and has room for the next power of two.
NUQ_DECLARE(void, join, const Encode& job, int64_t bucket, double* sums, const Maxima* maxima, int64_t parts)
// Codes of coordinates [first, last), packed; first begins a byte.
NUQ_DECLARE(void, encode, const Encode& job, int64_t first, int64_t last)
// The same of jobs that are not stochastic: ``encode`` knows.
NUQ_DECLARE(void, encode_thresholds, const Encode& job, int64_t first, int64_t last)
// Whether some code of [first, last) is beyond the levels.
NUQ_DECLARE(bool, beyond, const Decode& job, int64_t first, int64_t last)
NUQ_DECLARE(void, decode, const Decode& job, int64_t first, int64_t last)
