// The inner loops of the dynamic program (levels_grid.cpp).
#include "../levels.h"
#include "doubles.h"

namespace nuq {
namespace NUQ_ISA {
namespace {

// The first i in [low, high) at which a[i] + slope b[i] + weight x[i] is smallest; its value in *least.
inline int64_t first_smallest(const double* a, const double* b, const double* x, double slope, double weight,
                              int64_t low, int64_t high, double* least) {
    int64_t i = low, index = low;
    const double start = a[low] + slope * b[low] + weight * x[low];
    double best = start;
    if (high - low >= 2 * LANES) {
        // the turn in which a lane found its smallest, as a double: exact
        D small = start - D{}, turn = D{}, count = D{};
        for (; i + LANES <= high; i += LANES) {
            const D value = load(a + i) + slope * load(b + i) + weight * load(x + i);
            const Int lower = value < small;
            small = choose(lower, value, small);
            turn = choose(lower, count, turn);
            count = count + 1.0;
        }
        for (int lane = 0; lane < LANES; lane++) {
            const int64_t here = low + static_cast<int64_t>(turn[lane]) * LANES + lane;
            if (!(small[lane] < start)) continue;
            if (small[lane] < best || (small[lane] == best && here < index)) best = small[lane], index = here;
        }
    }
    for (; i < high; i++) {
        const double value = a[i] + slope * b[i] + weight * x[i];
        if (value < best) best = value, index = i;
    }
    *least = best;
    return index;
}

}  // namespace

// One layer: next[j] and from[j] for j in [first, last], whose best i lie in [low, high].  The middle j first, then
// both sides between the answers around.
void best_layer(const Layer& layer, int64_t first, int64_t last, int64_t low, int64_t high) {
    while (first <= last) {
        const int64_t j = (first + last) / 2, end = high + 1 < j ? high + 1 : j;
        double least;
        const int64_t i = first_smallest(layer.a, layer.b, layer.x, layer.x[j], layer.weight[j], low, end, &least);
        layer.next[j] = least + layer.rest[j];
        layer.from[j] = static_cast<int32_t>(i);
        if (first < j) best_layer(layer, first, j - 1, low, i);
        first = j + 1, low = i;
    }
}

}  // namespace NUQ_ISA
}  // namespace nuq
