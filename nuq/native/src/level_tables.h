// Step 4's tables, built once a call: what finds a coordinate's interval of levels, and what the interval holds.
#pragma once
#include <algorithm>
#include <limits>

#include "quantize.h"

namespace nuq {
struct LevelTables {
    int num_levels, last;  // the last interval
    // search[i]: the i-th interior level, and behind them something that is not <= any number.
    alignas(64) float search[MOST_LEVELS + 64], lower[MOST_LEVELS], inverse_width[MOST_LEVELS];
    int depth;  // steps of a binary search
    explicit LevelTables(const float* levels, int count) : num_levels(count), last(count - 2) {
        std::fill(search, search + MOST_LEVELS + 64, std::numeric_limits<float>::quiet_NaN());
        std::copy(levels + 1, levels + 1 + last, search + 1);
        for (depth = 0; (1 << depth) <= last;) ++depth;
        std::fill(lower, lower + MOST_LEVELS, 0.0f);
        std::fill(inverse_width, inverse_width + MOST_LEVELS, 0.0f);
        for (int k = 0; k <= last; ++k) {
            lower[k] = levels[k];
            inverse_width[k] = 1.0f / (levels[k + 1] - levels[k]);
        }
    }
};
}  // namespace nuq
