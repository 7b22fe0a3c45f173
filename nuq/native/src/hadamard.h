// The rotation's record and its two kernels: step 9 of the specification.
#pragma once
#include "isa.h"

namespace nuq {
struct Rotation {
    float* vector;
    uint32_t k0, k1;
    bool inverse;
};

constexpr int64_t TILE = 4096;  // coordinates that are rotated as far as possible while they are in L1
}  // namespace nuq

// Blocks of ``size`` <= TILE coordinates in [first, last): all their stages, with the signs, and times ``scale`` where
// they are
// ``whole``; else they are tiles of larger blocks, whose further stages are to come.
NUQ_DECLARE(void, rotate_tiles, const Rotation& job, int64_t first, int64_t last, int64_t size, float scale, bool whole)
// ``radix`` (2, 4 or 8) rows of ``distance`` coordinates each, the first at ``start``: the stages at distance, 2
// distance ... radix / 2 distance of columns [first, last); with scale and signs where these are the block's last.
NUQ_DECLARE(void, rotate_rows, const Rotation& job, int64_t start, int64_t distance, int radix, int64_t first,
            int64_t last, float scale, bool ends)
