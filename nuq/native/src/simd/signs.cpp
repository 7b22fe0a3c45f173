// One bit per coordinate: which side of zero it is on, the sums of the sides, and values from bits
// (nuq/kernels/signs.py).
#include <algorithm>

#include "../quantize.h"
#include "tree.h"
#include "vector.h"

NUQ_DECLARE(void, pack_sides, const float*, int64_t, uint8_t*)
NUQ_DECLARE(int64_t, sum_sides, const float*, int64_t, double*, double*)
NUQ_DECLARE(void, write_sides, const uint8_t*, int64_t, int64_t, float, float, float*, int)

namespace nuq {
namespace NUQ_ISA {
namespace {
// One bit for each lane that is not below zero.
inline uint32_t not_negative(F x) {
#if defined(NUQ_ISA_AVX512)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_GE_OQ);
#elif defined(NUQ_ISA_AVX2)
    return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_setzero_ps(), _CMP_GE_OQ)));
#elif defined(__SSE2__)
    return uint32_t(_mm_movemask_ps(_mm_cmpge_ps((__m128)x, _mm_setzero_ps())));
#else
    uint32_t bits = 0;
    for (int lane = 0; lane < W; ++lane) bits |= uint32_t(x[lane] >= 0) << lane;
    return bits;
#endif
}
}  // namespace

// count coordinates, the first of which begins a byte.
void pack_sides(const float* x, int64_t count, uint8_t* bits) {
    int64_t i = 0;
    for (; i + 64 <= count; i += 64) {
        uint64_t word = 0;
        for (int v = 0; v < 64 / W; ++v) word |= uint64_t(not_negative(load<F>(x + i + v * W))) << (v * W);
        prefetch(x + i + AHEAD);
        std::memcpy(bits + i / 8, &word, 8);
    }
    for (; i < count; i += 8) {
        unsigned byte = 0;
        for (int64_t k = 0; k < std::min<int64_t>(8, count - i); ++k) byte |= unsigned(x[i + k] >= 0) << k;
        bits[i / 8] = uint8_t(byte);
    }
}

// The tree's sums of a block of at most BLOCK coordinates: of those above zero, and of the others without their sign
// (so that what is not a number is in one of them).  How many are not below zero.
int64_t sum_sides(const float* x, int64_t count, double* above, double* below) {
    float room[BLOCK];
    const int64_t size = power_of_two(count), half = size / 2;
    if (count < size) {
        std::memcpy(room, x, size_t(count) * sizeof(float));
        std::fill(room + count, room + size, 0.0f);
    }
    const float* from = count < size ? room : x;
    int32_t counted = 0;
    for (int64_t i = 0; i < count; ++i) counted += x[i] >= 0;
    const auto upper = [](float value) { return value > 0 ? value : 0.0f; };
    const auto lower = [](float value) { return value > 0 ? 0.0f : 0.0f - value; };
    if (size == 1) {
        *above = upper(*x), *below = lower(*x);
        return counted;
    }
    double p[BLOCK / 2], m[BLOCK / 2];
    for (int64_t i = 0; i < half; ++i) p[i] = double(upper(from[i])) + double(upper(from[i + half]));
    for (int64_t i = 0; i < half; ++i) m[i] = double(lower(from[i])) + double(lower(from[i + half]));
    *above = halved(p, half), *below = halved(m, half);
    return counted;
}

// Coordinates [first, last) of one bucket.
void write_sides(const uint8_t* bits, int64_t first, int64_t last, float low, float high, float* total,
                 int accumulate) {
    const auto one = [&](int64_t c) {
        const float value = bits[c >> 3] >> (c & 7) & 1 ? high : low;
        total[c] = accumulate ? total[c] + value : value;
    };
    int64_t c = first;
    for (; c < last && c % 16; ++c) one(c);
    U lane_bits;
    for (int lane = 0; lane < W; ++lane) lane_bits[lane] = 1u << lane;
    const F lows = splat(low), highs = splat(high);
    for (; c + 16 <= last; c += 16) {
        uint16_t word;
        std::memcpy(&word, bits + (c >> 3), 2);
        if (accumulate) prefetch(total + c + AHEAD);
        for (int v = 0; v < 16 / W; ++v) {
            const U of_lane = splat(uint32_t(word) >> (v * W)) & lane_bits;
            const F value = where_equal(of_lane, 0, lows, highs);
            float* to = total + c + v * W;
            store(to, accumulate ? load<F>(to) + value : value);
        }
    }
    for (; c < last; ++c) one(c);
}
}  // namespace NUQ_ISA
}  // namespace nuq
