// The best levels among the points of a grid, by dynamic programming.
//
// The cost of an interval satisfies the quadrangle inequality under every law, so the best last-but-one level never moves left when the
// last one moves right, and a layer is solved by halving: the middle of a range first, then its two sides between the answers around.
#include <algorithm>
#include <vector>

#include "levels.h"

NUQ_DECLARE(int64_t, first_smallest, const double* a, const double* b, const double* x, double slope, double weight, int64_t low,
            int64_t high, double* least)

namespace {

using Vector = std::vector<double>;

// With S_k[i] = integral up to x_i of r^k dF, an interval costs -S2 + (x_i + x_j) S1 - x_i x_j S0 (each S a difference), which is
// linear in what depends on j once the rest is gathered by i: a_i + x_j b_i + (S1_j - x_j S0_j) x_i + (x_j S1_j - S2_j).
class Grid {
   public:
    Grid(const double* x_, const double* s, int64_t count_)
        : count(count_), x(x_), s0(s), s1(s + count_), s2(s + 2 * count_), a(static_cast<size_t>(count_)), b(a) {
        for (int64_t i = 0; i < count; i++) b[i] = x[i] * s0[i] - s1[i];
    }

    // chosen[n + 1]: places of the edges of n intervals, the first and the last point included.  Returns their cost.
    double solve(bool centred, int64_t n, int64_t* chosen) {
        Vector cost(a.size());
        for (int64_t j = 1; j < count; j++)
            cost[j] = centred ? x[j] * x[j] * (s0[j] - s0[0]) - (s2[j] - s2[0])
                              : (x[0] + x[j]) * (s1[j] - s1[0]) - (s2[j] - s2[0]) - x[0] * x[j] * (s0[j] - s0[0]);
        std::vector<std::vector<int32_t>> before(static_cast<size_t>(n) + 1);
        for (int64_t k = 2; k <= n; k++) {
            for (int64_t i = k - 1; i < count; i++) a[i] = cost[i] + s2[i] - x[i] * s1[i];
            from = &before[static_cast<size_t>(k)];
            from->resize(a.size());
            next = &cost;
            const int64_t last = count - 1 - (n - k);
            halve(k == n ? last : k, last, k - 1, last);
        }
        chosen[n] = count - 1;
        for (int64_t k = n; k >= 2; k--) chosen[k - 1] = before[static_cast<size_t>(k)][static_cast<size_t>(chosen[k])];
        chosen[0] = 0;
        return cost[count - 1];
    }

   private:
    const int64_t count;
    const double *x, *s0, *s1, *s2;
    Vector a, b;
    std::vector<int32_t>* from = nullptr;
    Vector* next = nullptr;

    // Layer values for j in [first, last], whose best i lie in [low, high].  The old layer lives on in a.
    void halve(int64_t first, int64_t last, int64_t low, int64_t high) {
        while (first <= last) {
            const int64_t j = (first + last) / 2;
            double least;
            const int64_t i = NUQ_CALL(first_smallest, a.data(), b.data(), x, x[j], s1[j] - x[j] * s0[j], low, std::min(high + 1, j), &least);
            (*next)[j] = least + (x[j] * s1[j] - s2[j]);
            (*from)[j] = static_cast<int32_t>(i);
            halve(first, j - 1, low, i);
            first = j + 1, low = i;
        }
    }
};

}  // namespace

NUQ_EXPORT double nuq_grid_levels(const double* x, const double* sums, int64_t count, int centred, int64_t intervals, int64_t* chosen) {
    return Grid(x, sums, count).solve(centred != 0, intervals, chosen);
}
