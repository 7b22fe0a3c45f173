// The rotation: stages within a register by shuffles, three more on eight registers, the others three at a time.
#include "../hadamard.h"

#include <algorithm>

#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
// The lanes at distance D change places.
template <int D>
inline F exchanged(F x) {
#if defined(NUQ_ISA_AVX512)
    if (D == 1) return (F)_mm512_permute_ps((__m512)x, 0xB1);
    if (D == 2) return (F)_mm512_permute_ps((__m512)x, 0x4E);
    if (D == 4) return (F)_mm512_permutex_pd((__m512d)x, 0x4E);
    return (F)_mm512_shuffle_f32x4((__m512)x, (__m512)x, 0x4E);
#elif defined(NUQ_ISA_AVX2)
    if (D == 1) return (F)_mm256_permute_ps((__m256)x, 0xB1);
    if (D == 2) return (F)_mm256_permute_ps((__m256)x, 0x4E);
    return (F)_mm256_permute2f128_ps((__m256)x, (__m256)x, 0x01);
#elif defined(__SSE2__)
    return D == 1 ? (F)_mm_shuffle_ps((__m128)x, (__m128)x, 0xB1) : (F)_mm_shuffle_ps((__m128)x, (__m128)x, 0x4E);
#else
    F y;
    for (int lane = 0; lane < W; ++lane) y[lane] = x[lane ^ D];
    return y;
#endif
}

struct Signs {
    alignas(64) uint32_t of[4][W];
    alignas(64) float factor[4][W];
};
constexpr Signs make_signs() {
    Signs signs{};
    for (int stage = 0; 1 << stage < W; ++stage)
        for (int lane = 0; lane < W; ++lane) {
            signs.of[stage][lane] = lane >> stage & 1 ? 0x80000000u : 0;
            signs.factor[stage][lane] = lane >> stage & 1 ? -1.0f : 1.0f;
        }
    return signs;
}
constexpr Signs SIGNS = make_signs();

// (a, b) <- (a + b, a - b) within a register, as (b + a, a + -b).
template <int STAGE>
inline F stage_within(F x) {
    const F y = exchanged<1 << STAGE>(x);
#if defined(NUQ_ISA_AVX512)
    // times 1 or -1: exact, so one rounding
    return (F)_mm512_fmadd_ps((__m512)x, (__m512)load<F>(SIGNS.factor[STAGE]), (__m512)y);
#else
    return y + (F)((U)x ^ load<U>(SIGNS.of[STAGE]));
#endif
}

inline F stages_within(F x) {
    x = stage_within<0>(x);
    x = stage_within<1>(x);
    if (W > 4) x = stage_within<(W > 4 ? 2 : 0)>(x);
    if (W > 8) x = stage_within<(W > 8 ? 3 : 0)>(x);
    return x;
}

template <int RADIX>
inline void stages_across(F* v) {
    for (int distance = 1; distance < RADIX; distance *= 2)
        for (int i = 0; i < RADIX; ++i)
            if (!(i & distance)) {
                const F a = v[i], b = v[i + distance];
                v[i] = a + b;
                v[i + distance] = a - b;
            }
}

inline F flipped(F x, Hash hash, int64_t c) { return (F)((U)x ^ (hash.nearly<true>(uint32_t(c)) & 0x80000000u)); }

// RADIX registers in a row: the stages at distance 1 .. RADIX * W / 2.
template <int RADIX>
inline void near_stages(const Rotation& job, int64_t first, int64_t last, float scale, bool ends) {
    const Hash hash{job.k0, job.k1};
    for (int64_t c = first; c < last; c += RADIX * W) {
        F v[RADIX];
        for (int i = 0; i < RADIX; ++i) {
            v[i] = load<F>(job.vector + c + i * W);
            prefetch(job.vector + c + i * W + AHEAD);
            if (!job.inverse) v[i] = flipped(v[i], hash, c + i * W);
            v[i] = stages_within(v[i]);
        }
        stages_across<RADIX>(v);
        for (int i = 0; i < RADIX; ++i) {
            if (ends) v[i] = v[i] * scale;
            if (ends && job.inverse) v[i] = flipped(v[i], hash, c + i * W);
            store(job.vector + c + i * W, v[i]);
        }
    }
}

template <int RADIX>
inline void far_stages(const Rotation& job, int64_t start, int64_t distance, int64_t first, int64_t last, float scale,
                       bool ends) {
    const Hash hash{job.k0, job.k1};
    for (int64_t c = start + first; c < start + last; c += W) {
        F v[RADIX];
        for (int i = 0; i < RADIX; ++i) v[i] = load<F>(job.vector + c + i * distance);
        stages_across<RADIX>(v);
        for (int i = 0; i < RADIX; ++i) {
            if (ends) v[i] = v[i] * scale;
            if (ends && job.inverse) v[i] = flipped(v[i], hash, c + i * distance);
            store(job.vector + c + i * distance, v[i]);
        }
    }
}

void rotate_small(const Rotation& job, int64_t first, int64_t last, int64_t size, float scale) {
    uint32_t signs[W];
    for (int64_t start = first; start < last; start += size) {
        float* x = job.vector + start;
        store(signs, Hash{job.k0, job.k1}.at<false>(uint32_t(start)));
        const auto flip = [&](int64_t i) { return signs[i] >> 31 ? -1.0f : 1.0f; };
        if (!job.inverse)
            for (int64_t i = 0; i < size; ++i) x[i] *= flip(i);
        for (int64_t distance = 1; distance < size; distance *= 2)
            for (int64_t i = 0; i < size; ++i)
                if (!(i & distance)) {
                    const float a = x[i], b = x[i + distance];
                    x[i] = a + b;
                    x[i + distance] = a - b;
                }
        for (int64_t i = 0; i < size; ++i) x[i] = x[i] * scale * (job.inverse ? flip(i) : 1.0f);
    }
}
}  // namespace

void rotate_rows(const Rotation& job, int64_t start, int64_t distance, int radix, int64_t first, int64_t last,
                 float scale, bool ends) {
    if (radix == 8) far_stages<8>(job, start, distance, first, last, scale, ends);
    else if (radix == 4) far_stages<4>(job, start, distance, first, last, scale, ends);
    else far_stages<2>(job, start, distance, first, last, scale, ends);
}

void rotate_tiles(const Rotation& job, int64_t first, int64_t last, int64_t size, float scale, bool whole) {
    if (size < W) {
        rotate_small(job, first, last, size, scale);
        return;
    }
    const int radix = int(std::min<int64_t>(8, size / W));
    for (int64_t start = first; start < last; start += size) {
        const bool ends = whole && size == radix * W;
        if (radix == 8) near_stages<8>(job, start, start + size, scale, ends);
        else if (radix == 4) near_stages<4>(job, start, start + size, scale, ends);
        else if (radix == 2) near_stages<2>(job, start, start + size, scale, ends);
        else near_stages<1>(job, start, start + size, scale, ends);
        for (int64_t distance = radix * W; distance < size;) {
            const int next = int(std::min<int64_t>(8, size / distance));
            for (int64_t row = start; row < start + size; row += next * distance)
                rotate_rows(job, row, distance, next, 0, distance, scale, whole && next * distance == size);
            distance *= next;
        }
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
