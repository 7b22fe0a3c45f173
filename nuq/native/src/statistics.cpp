// The norm^2-weighted histogram of sampled, normalised coordinates: the sums of nuq/kernels/statistics.py, added in the
// same order.
#include <cmath>
#include <cstring>
#include <vector>

#include "isa.h"

// x: float32[n] in buckets of `bucket`; every `every`-th coordinate is taken.  scales: `per` float32 per bucket, the
// last one the top. sums: float64[3][2 * side], to zero; tops: float64[2], to zero.  Bins are found by the bits of |r|:
// `log_bins` bits of the mantissa.
NUQ_EXPORT void nuq_histogram(const float* x, int64_t n, int64_t bucket, int64_t every, const float* scales,
                              int64_t per, double weight_each, int32_t log_bins, int32_t lowest, int64_t side,
                              double* sums, double* tops) {
    // the three sums of a bin beside each other: one cache line, not three
    std::vector<double> bins(static_cast<size_t>(6 * side));
    int64_t b = 0, end = bucket;  // a division for every coordinate would cost more than all the rest
    for (int64_t i = 0; i < n; i += every) {
        for (; i >= end; ++b) end += bucket;
        const float scale = scales[b * per];
        if (!(scale > 0.0f)) continue;
        const float r = std::fmin(std::fmax(x[i] / scale, -1.0f), 1.0f), size = std::fabs(r);
        int32_t bits;
        std::memcpy(&bits, &size, sizeof bits);
        int64_t place = (bits >> (23 - log_bins)) - lowest + 1;
        place = place < 0 ? 0 : place > side - 1 ? side - 1 : place;
        const int64_t bin = r < 0.0f ? side - 1 - place : side + place;
        const double wide = r, weight = double(scale) * double(scale) * weight_each, moment = weight * wide;
        double* const at = bins.data() + 3 * bin;
        at[0] += weight;
        at[1] += moment;
        at[2] += moment * wide;
        tops[0] += weight;
        tops[1] += weight * double(scales[b * per + per - 1] / scale);
    }
    for (int64_t bin = 0; bin < 2 * side; ++bin)
        for (int64_t order = 0; order < 3; ++order)
            sums[order * 2 * side + bin] = bins[static_cast<size_t>(3 * bin + order)];
}
