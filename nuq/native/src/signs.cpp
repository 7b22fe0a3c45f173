// The entry points of simd/signs.cpp: how a vector is cut among the threads.  The cuts change no bit.
#include <algorithm>
#include <vector>

#include "quantize.h"
#include "threads.h"

NUQ_DECLARE(void, pack_sides, const float*, int64_t, uint8_t*)
NUQ_DECLARE(int64_t, sum_sides, const float*, int64_t, double*, double*)
NUQ_DECLARE(void, write_sides, const uint8_t*, int64_t, int64_t, float, float, float*, int)

namespace {
using namespace nuq;

constexpr int64_t PORTION = 1 << 15;  // coordinates that a thread takes at a time

double halved(double* values, int64_t size) {
    for (int64_t h = size / 2; h > 0; h /= 2)
        for (int64_t i = 0; i < h; ++i) values[i] += values[i + h];
    return values[0];
}
}  // namespace

NUQ_EXPORT void nuq_pack_sides(const float* x, int64_t size, uint8_t* bits, int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += PORTION)
        NUQ_CALL(pack_sides, x + first, std::min(PORTION, size - first), bits + first / 8);
}

// sums: float64[buckets, 2], above zero and below; counts: int64[buckets], not below zero.
NUQ_EXPORT void nuq_sum_sides(const float* x, int64_t size, int64_t bucket, double* sums, int64_t* counts,
                              int threads) {
    const int64_t buckets = (size + bucket - 1) / bucket, blocks = (bucket + BLOCK - 1) / BLOCK;
    int64_t room = 1;
    while (room < blocks) room *= 2;
    std::vector<double> above(size_t(buckets * room)), below(size_t(buckets * room));
    std::vector<int32_t> counted(size_t(buckets * room));
#pragma omp parallel for schedule(static, 64) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t task = 0; task < buckets * blocks; ++task) {
        const int64_t number = task / blocks, block = task % blocks;
        const int64_t end = std::min(size, (number + 1) * bucket), at = number * bucket + block * BLOCK;
        const size_t index = size_t(number * room + block);
        if (at < end)
            counted[index] =
                int32_t(NUQ_CALL(sum_sides, x + at, std::min(BLOCK, end - at), &above[index], &below[index]));
    }
    for (int64_t number = 0; number < buckets; ++number) {
        const size_t index = size_t(number * room);
        sums[2 * number] = halved(&above[index], room);
        sums[2 * number + 1] = halved(&below[index], room);
        counts[number] = 0;
        for (int64_t block = 0; block < blocks; ++block) counts[number] += counted[index + size_t(block)];
    }
}

// values: float32[buckets, 2], of coordinates below zero and of the others.
NUQ_EXPORT void nuq_write_sides(const uint8_t* bits, const float* values, int64_t size, int64_t bucket, float* total,
                                int accumulate, int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += PORTION) {
        const int64_t last = std::min(size, first + PORTION);
        for (int64_t c = first; c < last;) {
            const int64_t number = c / bucket, end = std::min(last, (number + 1) * bucket);
            NUQ_CALL(write_sides, bits, c, end, values[2 * number], values[2 * number + 1], total, accumulate);
            c = end;
        }
    }
}
