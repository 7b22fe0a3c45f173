// Scalar products of buckets: the tree of the specification's step 2 over products.
#include <algorithm>
#include <vector>

#include "../quantize.h"
#include "tree.h"

NUQ_DECLARE(void, dots, const float*, const float*, int64_t, int64_t, int64_t, double*)

namespace nuq {
namespace NUQ_ISA {
namespace {
double product(const float* a, const float* b, int64_t count, std::vector<double>& blocks) {
    blocks.assign(static_cast<size_t>(power_of_two((count + BLOCK - 1) / BLOCK)), 0.0);
    for (int64_t first = 0; first < count; first += BLOCK) {
        double products[BLOCK];
        const int64_t here = std::min(BLOCK, count - first), size = power_of_two(here);
        for (int64_t i = 0; i < here; ++i) products[i] = double(a[first + i]) * double(b[first + i]);
        std::fill(products + here, products + size, 0.0);
        blocks[static_cast<size_t>(first / BLOCK)] = halved(products, size);
    }
    return halved(blocks.data(), int64_t(blocks.size()));
}
}  // namespace

void dots(const float* a, const float* b, int64_t size, int64_t bucket, int64_t number, double* sums) {
    std::vector<double> blocks;
    const int64_t first = number * bucket;
    sums[number] = product(a + first, b + first, std::min(bucket, size - first), blocks);
}
}  // namespace NUQ_ISA
}  // namespace nuq
