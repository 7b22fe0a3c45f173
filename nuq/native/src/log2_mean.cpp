// The mean logarithm of a vector: integers, so that the order of the sum changes no bit.
#include "log2_mean.h"

#include <algorithm>

#include "threads.h"

constexpr int64_t PORTION = 1 << 15;  // coordinates that a thread takes at a time

// fractions: int32[256] of nuq/kernels/log2_mean.py; sums: int64[2], the sum of the logarithms in units of 2^-16 and
// the number of nonzeros.
NUQ_EXPORT void nuq_log_sum(const float* x, int64_t size, const int32_t* fractions, int64_t* sums, int threads) {
    int64_t total = 0, counted = 0;
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads)) reduction(+ : total, counted)
    for (int64_t first = 0; first < size; first += PORTION) {
        int64_t sum = 0, count = 0;
        NUQ_CALL(log_sum, x + first, std::min(PORTION, size - first), fractions, sum, count);
        total += sum, counted += count;
    }
    sums[0] = total, sums[1] = counted;
}
