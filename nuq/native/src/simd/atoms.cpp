// ATOMO: sums of products in a fixed order, and coordinates that a coin keeps (nuq/kernels/atoms.py).
#include <algorithm>
#include <cmath>

#include "../hash.h"
#include "../isa.h"

NUQ_DECLARE(void, product_row, const float*, const float*, int64_t, int64_t, int64_t, float*)
NUQ_DECLARE(int64_t, tossed, const float*, int64_t, int64_t, double, uint32_t, uint32_t, int32_t*)

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int64_t COLUMNS = 256;  // sums that stay near
constexpr int64_t BLOCK = 64;     // coordinates looked at before indices are written
}  // namespace

// total[j] = sum over i of left[i * stride] * right[i * n + j], in the order of i, each operation rounded.
void product_row(const float* left, const float* right, int64_t k, int64_t stride, int64_t n, float* total) {
    for (int64_t first = 0; first < n; first += COLUMNS) {
        const int64_t count = std::min(COLUMNS, n - first);
        float sums[COLUMNS] = {};
        for (int64_t i = 0; i < k; ++i) {
            const float factor = left[i * stride];
            const float* from = right + i * n + first;
            for (int64_t j = 0; j < count; ++j) sums[j] += factor * from[j];
        }
        std::copy(sums, sums + count, total + first);
    }
}

int64_t tossed(const float* x, int64_t first, int64_t last, double unit, uint32_t k0, uint32_t k1, int32_t* to) {
    int64_t kept = 0;
    uint8_t wanted[BLOCK];
    for (int64_t i = first; i < last; i += BLOCK) {
        const int64_t count = std::min(BLOCK, last - i);
        unsigned any = 0;
        for (int64_t j = 0; j < count; ++j) {
            const uint32_t h = random_number(uint32_t(i + j), k0, k1);
            wanted[j] = double(h) * unit < double(std::fabs(x[i + j]));
            any |= wanted[j];
        }
        if (!any) continue;
        for (int64_t j = 0; j < count; ++j) {
            to[kept] = int32_t(i + j);  // in vain where it is not kept; within the room of what was looked at
            kept += wanted[j];
        }
    }
    return kept;
}
}  // namespace NUQ_ISA
}  // namespace nuq
