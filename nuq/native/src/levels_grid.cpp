// The best levels among the points of a grid, by dynamic programming.
//
// The cost of an interval satisfies the quadrangle inequality under every distribution, so the best last-but-one level
// never moves left when the last one moves right, and a layer is solved by halving: the middle of a range first, then
// its two sides between the answers around.
#include <vector>

#include "levels.h"

namespace {

using Vector = std::vector<double>;

// With S_k[i] = integral up to x_i of r^k dF, an interval costs -S2 + (x_i + x_j) S1 - x_i x_j S0 (each S a
// difference), which is linear in what depends on j once the rest is gathered by i: a_i + x_j b_i + (S1_j - x_j S0_j)
// x_i + (x_j S1_j - S2_j).
double solve(const double* x, const double* s, int64_t count, bool centred, int64_t n, int64_t* chosen) {
    const double *s0 = s, *s1 = s + count, *s2 = s + 2 * count;
    const size_t size = static_cast<size_t>(count);
    Vector a(size), b(size), weight(size), rest(size), cost(size);
    for (int64_t j = 0; j < count; j++) {
        b[j] = x[j] * s0[j] - s1[j];
        weight[j] = s1[j] - x[j] * s0[j];
        rest[j] = x[j] * s1[j] - s2[j];
        cost[j] = centred ? x[j] * x[j] * (s0[j] - s0[0]) - (s2[j] - s2[0])
                          : (x[0] + x[j]) * (s1[j] - s1[0]) - (s2[j] - s2[0]) - x[0] * x[j] * (s0[j] - s0[0]);
    }
    std::vector<int32_t> from(static_cast<size_t>(n + 1) * size);
    for (int64_t k = 2; k <= n; k++) {
        for (int64_t i = k - 1; i < count; i++) a[i] = cost[i] + s2[i] - x[i] * s1[i];  // the old layer lives on in a
        const int64_t last = count - 1 - (n - k);
        const nuq::Layer layer{a.data(), b.data(), x, weight.data(), rest.data(), cost.data(), from.data() + k * count};
        NUQ_CALL(best_layer, layer, k == n ? last : k, last, k - 1, last);
    }
    chosen[0] = 0;
    chosen[n] = count - 1;
    for (int64_t k = n; k >= 2; k--) chosen[k - 1] = from[static_cast<size_t>(k * count + chosen[k])];
    return cost[size - 1];
}

}  // namespace

NUQ_EXPORT double nuq_grid_levels(const double* x, const double* sums, int64_t count, int centred, int64_t intervals,
                                  int64_t* chosen) {
    return solve(x, sums, count, centred != 0, intervals, chosen);
}
