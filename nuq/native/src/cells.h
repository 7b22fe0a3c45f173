// Coordinates in clusters and cells (nuq/kernels/sketches/cells.py), and min-max sketches
// (nuq/kernels/sketches/minmax.py).
#pragma once
#include "isa.h"

namespace nuq {
// A cell while it is summed: together, so that both are fetched at once.
struct Sum {
    int64_t sum, count;
};

// cells, scales: by number, 256 each; sums: of all cells.
struct Cells {
    const int64_t* cells;
    const double* scales;
    uint32_t k0, k1;
    Sum* sums;
};

// columns: of a row of a group's, 256; words: of the rows' hashes.
struct Sketch {
    const int64_t* columns;
    const uint32_t* words;
    int rows;
};
}  // namespace nuq

NUQ_DECLARE(void, cell_numbers, const float*, int64_t, const float*, int, int, int, uint8_t*)
NUQ_DECLARE(void, cell_sums, const Cells&, const float*, const uint8_t*, int64_t, int64_t)
NUQ_DECLARE(int, cell_spread, const uint8_t*, int64_t, int64_t, const int64_t*, const float*, uint32_t, uint32_t,
            float*)
NUQ_DECLARE(void, minmax_insert, const Sketch&, const uint8_t*, const uint8_t*, const uint8_t*, int64_t, int64_t,
            uint8_t*, uint8_t*)
NUQ_DECLARE(void, minmax_query, const Sketch&, const uint8_t*, int64_t, int64_t, const uint8_t*, uint8_t*)
