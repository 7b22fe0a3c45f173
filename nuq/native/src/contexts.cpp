// Entry point of simd/contexts.cpp.
#include <algorithm>

#include "isa.h"

NUQ_DECLARE(void, leading_bits, int64_t, int64_t, uint32_t, uint32_t, int, uint8_t*)

NUQ_EXPORT void nuq_leading_bits(int64_t size, uint32_t k0, uint32_t k1, int count, uint8_t* to, int threads) {
    constexpr int64_t portion = 1 << 16;
#pragma omp parallel for num_threads(threads) if (threads > 1 && size > portion)
    for (int64_t first = 0; first < size; first += portion)
        NUQ_CALL(leading_bits, first, std::min(size, first + portion), k0, k1, count, to);
}
