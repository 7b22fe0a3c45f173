// One pass over the coordinates that keeps the indices of those with a large enough key.
#include <algorithm>
#include <cstring>
#if defined(NUQ_ISA_AVX512)
#include <immintrin.h>
#endif

#include "../hash.h"
#include "../select.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int64_t BLOCK = 64;  // keys made at a time; a block without one that is wanted costs nothing more

// ``keys``: of indices first + 0 .. count - 1; to: room for count, or 16 where that is more than is kept.
inline int64_t keep(const uint32_t* keys, int64_t count, int32_t first, uint32_t least, int32_t* to) {
    int64_t kept = 0, j = 0;
#if defined(NUQ_ISA_AVX512)
    const __m512i bound = _mm512_set1_epi32(int32_t(least));
    __m512i index = _mm512_add_epi32(_mm512_set1_epi32(first),
                                     _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    for (; j + 16 <= count; j += 16) {
        const __mmask16 wanted = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(keys + j), bound);
        // in vain beyond what is kept, but within count
        _mm512_storeu_si512(to + kept, _mm512_maskz_compress_epi32(wanted, index));
        kept += __builtin_popcount(wanted);
        index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
    }
#endif
    for (; j < count; ++j) {
        to[kept] = int32_t(uint32_t(first) + uint32_t(j));
        kept += keys[j] >= least;
    }
    return kept;
}

inline uint32_t largest_of(const uint32_t* keys, int64_t count) {
    uint32_t largest = 0;
    for (int64_t j = 0; j < count; ++j) largest = std::max(largest, keys[j]);
    return largest;
}

inline void magnitudes(const float* x, int64_t count, uint32_t* keys) {
    std::memcpy(keys, x, sizeof(uint32_t) * size_t(count));
    for (int64_t j = 0; j < count; ++j) keys[j] &= 0x7fffffffu;
}
}  // namespace

int64_t collect_magnitudes(const float* x, int64_t first, int64_t last, uint32_t least, int32_t* to,
                           uint32_t* largest) {
    uint32_t keys[BLOCK], most = 0;
    int64_t kept = 0, i = first;
    for (; i + BLOCK <= last; i += BLOCK) {  // a constant length: unrolled
        magnitudes(x + i, BLOCK, keys);
        const uint32_t here = largest_of(keys, BLOCK);
        most = std::max(most, here);
        if (here >= least) kept += keep(keys, BLOCK, int32_t(i), least, to + kept);
    }
    magnitudes(x + i, last - i, keys);
    *largest = std::max(most, largest_of(keys, last - i));
    return kept + keep(keys, last - i, int32_t(i), least, to + kept);
}

int64_t collect_hashes(uint32_t k0, uint32_t k1, int64_t first, int64_t last, uint32_t least, int32_t* to) {
    uint32_t keys[BLOCK];
    int64_t kept = 0;
    for (int64_t i = first; i < last; i += BLOCK) {
        const int64_t count = std::min(BLOCK, last - i);
        for (int64_t j = 0; j < BLOCK; ++j) {
            const uint32_t h = random_number(uint32_t(i + j), k0, k1);
            keys[j] = ~h;
        }
        if (largest_of(keys, count) >= least) kept += keep(keys, count, int32_t(i), least, to + kept);
    }
    return kept;
}

uint32_t largest_magnitude(const float* x, int64_t first, int64_t last) {
    uint32_t keys[BLOCK], most = 0;
    int64_t i = first;
    for (; i + BLOCK <= last; i += BLOCK) {
        magnitudes(x + i, BLOCK, keys);
        most = std::max(most, largest_of(keys, BLOCK));
    }
    magnitudes(x + i, last - i, keys);
    return std::max(most, largest_of(keys, last - i));
}
}  // namespace NUQ_ISA
}  // namespace nuq
