// The entry points of simd/atoms.cpp: how rows and coordinates are cut among the threads.  The cuts change no bit.
#include <algorithm>
#include <cstring>
#include <vector>

#include "isa.h"
#include "threads.h"

NUQ_DECLARE(void, product_row, const float*, const float*, int64_t, int64_t, int64_t, float*)
NUQ_DECLARE(int64_t, tossed, const float*, int64_t, int64_t, double, uint32_t, uint32_t, int32_t*)

namespace {
constexpr int64_t PORTION = 1 << 16;  // coordinates worth a thread
}  // namespace

// left: float[k, m]; right: float[k, n]; total: float[m, n].
NUQ_EXPORT void nuq_product_sum(const float* left, const float* right, int64_t k, int64_t m, int64_t n, float* total,
                                int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(m * n > PORTION, threads))
    for (int64_t row = 0; row < m; ++row) NUQ_CALL(product_row, left + row, right, k, m, n, total + row * n);
}

// Indices i with h(i) * unit < |x[i]|, ascending, into ``to`` (room for n); their number.
NUQ_EXPORT int64_t nuq_tossed(const float* x, int64_t n, double unit, uint32_t k0, uint32_t k1, int32_t* to,
                              int threads) {
    const int64_t teams = std::min<int64_t>(nuq::team(n > PORTION, threads), std::max<int64_t>(1, n / PORTION));
    const int64_t each = (n + teams - 1) / teams;
    std::vector<int64_t> counts(static_cast<size_t>(teams));
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t)
        counts[size_t(t)] =
            NUQ_CALL(tossed, x, std::min(t * each, n), std::min((t + 1) * each, n), unit, k0, k1, to + t * each);
    int64_t total = counts[0];
    for (int64_t t = 1; t < teams; ++t) {
        std::memmove(to + total, to + t * each, sizeof(int32_t) * size_t(counts[size_t(t)]));
        total += counts[size_t(t)];
    }
    return total;
}
