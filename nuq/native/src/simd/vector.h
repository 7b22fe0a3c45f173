// Vectors as wide as the instruction set's registers: the compiler's own vector types, whose operators need no
// intrinsics, and the few operations that have no operator.
#pragma once
#include <cstring>

#include "../hash.h"
#include "../isa.h"

#if defined(NUQ_ISA_AVX512) || defined(NUQ_ISA_AVX2)

// GCC 12's own headers, on values that are meant to be undefined
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace nuq {
namespace NUQ_ISA {
namespace {
#if defined(NUQ_ISA_AVX512)
constexpr int W = 16;  // 32-bit lanes
#elif defined(NUQ_ISA_AVX2)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float F __attribute__((vector_size(4 * W), may_alias));
typedef int32_t I __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t U __attribute__((vector_size(4 * W), may_alias));
typedef double D __attribute__((vector_size(4 * W), may_alias));
typedef float HalfF __attribute__((vector_size(2 * W), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(W), may_alias));
typedef uint8_t Quad __attribute__((vector_size(4 * W), may_alias));  // the codes of four vectors
typedef uint16_t Shorts __attribute__((vector_size(2 * W), may_alias));

template <class V, class T>
inline V load(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class V, class T>
inline void store(T* to, V value) {
    std::memcpy(to, &value, sizeof value);
}

// Asks for memory that is needed two pages from now: the processor's own prefetchers stop at the end of a page.
constexpr int64_t AHEAD = 2048;
inline void prefetch(const void* at) { __builtin_prefetch(at, 0, 2); }

// The first ``count`` lanes, zeros behind.
inline F load_first(const float* from, int64_t count) {
    float lanes[W] = {};
    std::memcpy(lanes, from, size_t(count) * sizeof(float));
    return load<F>(lanes);
}

inline void store_first(float* to, F value, int64_t count) {
    float lanes[W];
    store(lanes, value);
    std::memcpy(to, lanes, size_t(count) * sizeof(float));
}

inline F splat(float value) { return value - F{}; }  // value - 0 keeps a zero's sign
inline U splat(uint32_t value) { return value + U{}; }
inline I splat(int32_t value) { return value + I{}; }

inline F to_float(I value) { return __builtin_convertvector(value, F); }
inline F to_float(U value) { return to_float((I)value); }  // below 2^31
inline I truncate(F value) { return __builtin_convertvector(value, I); }
inline D widened(const float* from) {
#if defined(NUQ_ISA_AVX512)
    return (D)_mm512_cvtps_pd(_mm256_loadu_ps(from));
#elif defined(NUQ_ISA_AVX2)
    return (D)_mm256_cvtps_pd(_mm_loadu_ps(from));
#else
    return __builtin_convertvector(load<HalfF>(from), D);
#endif
}

// NaN does not occur; which zero comes out is free.
inline F at_least(F value, F bound) {
#if defined(NUQ_ISA_AVX512)
    return (F)_mm512_max_ps((__m512)value, (__m512)bound);
#elif defined(NUQ_ISA_AVX2)
    return (F)_mm256_max_ps((__m256)value, (__m256)bound);
#else
    return value > bound ? value : bound;
#endif
}

inline F at_most(F value, F bound) {
#if defined(NUQ_ISA_AVX512)
    return (F)_mm512_min_ps((__m512)value, (__m512)bound);
#elif defined(NUQ_ISA_AVX2)
    return (F)_mm256_min_ps((__m256)value, (__m256)bound);
#else
    return value < bound ? value : bound;
#endif
}

// Between -bound and bound; bound is not negative.
inline F clamped(F value, F bound) {
#if defined(NUQ_ISA_AVX512)
    return (F)_mm512_range_ps((__m512)value, (__m512)bound, 0b0010);  // the smaller magnitude, the sign of value
#else
    return at_most(at_least(value, -bound), bound);
#endif
}

// By a count that is the same in all lanes, but not known to the compiler; one instruction where lanes have counts of
// their own.
#if defined(NUQ_ISA_AVX512) || defined(NUQ_ISA_AVX2)
inline U shifted_right(U value, int count) { return value >> splat(uint32_t(count)); }
inline I shifted_right(I value, int count) { return value >> splat(int32_t(count)); }
#else
inline U shifted_right(U value, int count) { return value >> count; }
inline I shifted_right(I value, int count) { return value >> count; }
#endif

inline I larger(I a, I b) {
#if defined(NUQ_ISA_AVX512)
    return (I)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(NUQ_ISA_AVX2)
    return (I)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    return a > b ? a : b;
#endif
}

// k + amount in the lanes where a <= b; there where a < b.
inline U add_where_not_above(U k, F a, F b, uint32_t amount) {
#if defined(NUQ_ISA_AVX512)
    const __mmask16 where = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
    return (U)_mm512_mask_add_epi32((__m512i)k, where, (__m512i)k, _mm512_set1_epi32(int(amount)));
#else
    return k + ((U)(a <= b) & amount);
#endif
}

inline U add_where_below(U k, F a, F b) {
#if defined(NUQ_ISA_AVX512)
    const __mmask16 where = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (U)_mm512_mask_sub_epi32((__m512i)k, where, (__m512i)k, _mm512_set1_epi32(-1));
#else
    return k - (U)(a < b);
#endif
}

inline F where_equal(U a, uint32_t b, F yes, F no) {
#if defined(NUQ_ISA_AVX512)
    return (F)_mm512_mask_mov_ps((__m512)no, _mm512_cmpeq_epi32_mask((__m512i)a, _mm512_set1_epi32(int(b))),
                                 (__m512)yes);
#else
    const U mask = (U)(a == b);
    return (F)(((U)yes & mask) | ((U)no & ~mask));
#endif
}

// W codes as bytes or shorts.
inline void store_codes(uint8_t* to, U codes) {
#if defined(NUQ_ISA_AVX512)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)codes));
#else
    store(to, __builtin_convertvector(codes, Bytes));
#endif
}

inline void store_codes(uint16_t* to, U codes) {
#if defined(NUQ_ISA_AVX512)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16((__m512i)codes));
#else
    store(to, __builtin_convertvector(codes, Shorts));
#endif
}

inline U load_codes(const uint8_t* from) {
#if defined(NUQ_ISA_AVX512)
    return (U)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(NUQ_ISA_AVX2)
    return (U)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
    return __builtin_convertvector(load<Bytes>(from), U);
#endif
}

inline U load_codes(const uint16_t* from) {
#if defined(NUQ_ISA_AVX512)
    return (U)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(NUQ_ISA_AVX2)
    return (U)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    return __builtin_convertvector(load<Shorts>(from), U);
#endif
}

// Codes below 256 of four vectors in a row, as the bytes of one.
inline Quad narrowed(U a, U b, U c, U d) {
#if defined(NUQ_ISA_AVX512)
    const __m512i low = _mm512_packus_epi32((__m512i)a, (__m512i)b), high = _mm512_packus_epi32((__m512i)c, (__m512i)d);
    // packing is by 128 bits
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return (Quad)_mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
#elif defined(NUQ_ISA_AVX2)
    const __m256i low = _mm256_packus_epi32((__m256i)a, (__m256i)b), high = _mm256_packus_epi32((__m256i)c, (__m256i)d);
    return (Quad)_mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#elif defined(__SSE2__)
    const __m128i low = _mm_packs_epi32((__m128i)a, (__m128i)b), high = _mm_packs_epi32((__m128i)c, (__m128i)d);
    return (Quad)_mm_packus_epi16(low, high);
#else
    uint8_t bytes[4 * W];
    store_codes(bytes, a), store_codes(bytes + W, b), store_codes(bytes + 2 * W, c), store_codes(bytes + 3 * W, d);
    return load<Quad>(bytes);
#endif
}

// --- tables --------------------------------------------------------------------------------------------------------

inline F gathered(const float* table, U index) {
#if defined(NUQ_ISA_AVX512)
    return (F)_mm512_i32gather_ps((__m512i)index, table, 4);
#elif defined(NUQ_ISA_AVX2)
    return (F)_mm256_i32gather_ps(table, (__m256i)index, 4);
#else
    float lanes[W];
    for (int lane = 0; lane < W; ++lane) lanes[lane] = table[index[lane]];
    return load<F>(lanes);
#endif
}

// Of 16-bit entries, with one more behind them.
inline U gathered(const uint16_t* table, U index) {
#if defined(NUQ_ISA_AVX512)
    return (U)_mm512_i32gather_epi32((__m512i)index, table, 2) & 0xFFFF;
#elif defined(NUQ_ISA_AVX2)
    return (U)_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), (__m256i)index, 2) & 0xFFFF;
#else
    uint32_t lanes[W];
    for (int lane = 0; lane < W; ++lane) lanes[lane] = table[index[lane]];
    return load<U>(lanes);
#endif
}

// A table of floats that stays where a lookup is cheapest: SIZE entries in registers, or (SIZE 0) in memory.
template <int SIZE>
struct Table {
    const float* memory = nullptr;
    Table() = default;
    explicit Table(const float* entries) : memory(entries) {}
    F operator[](U index) const { return gathered(memory, index); }
};

#if defined(NUQ_ISA_AVX512)
constexpr int SMALL_TABLE = 16, LARGE_TABLE = 32;

template <>
struct Table<16> {
    __m512 low;
    Table() = default;
    explicit Table(const float* entries) : low(_mm512_loadu_ps(entries)) {}
    F operator[](U index) const { return (F)_mm512_permutexvar_ps((__m512i)index, low); }
};

template <>
struct Table<32> {
    __m512 low, high;
    Table() = default;
    explicit Table(const float* entries) : low(_mm512_loadu_ps(entries)), high(_mm512_loadu_ps(entries + 16)) {}
    F operator[](U index) const { return (F)_mm512_permutex2var_ps(low, (__m512i)index, high); }
};
#elif defined(NUQ_ISA_AVX2)
constexpr int SMALL_TABLE = 8, LARGE_TABLE = 16;

template <>
struct Table<8> {
    __m256 low;
    Table() = default;
    explicit Table(const float* entries) : low(_mm256_loadu_ps(entries)) {}
    F operator[](U index) const { return (F)_mm256_permutevar8x32_ps(low, (__m256i)index); }
};

template <>
struct Table<16> {
    __m256 low, high;
    Table() = default;
    explicit Table(const float* entries) : low(_mm256_loadu_ps(entries)), high(_mm256_loadu_ps(entries + 8)) {}
    F operator[](U index) const {
        const __m256i i = (__m256i)index;
        return (F)_mm256_blendv_ps(_mm256_permutevar8x32_ps(low, i), _mm256_permutevar8x32_ps(high, i),
                                   _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
    }
};
#else
constexpr int SMALL_TABLE = 0, LARGE_TABLE = 0;
#endif

// --- random numbers ------------------------------------------------------------------------------------------------

// Step 6, W at a time.

// (lane ^ low) * MIX_1 for every low below W.
struct Products {
    alignas(64) uint32_t of[W][W];
};
constexpr Products make_products() {
    Products products{};
    for (uint32_t low = 0; low < W; ++low)
        for (uint32_t lane = 0; lane < W; ++lane) products.of[low][lane] = (lane ^ low) * MIX_1;
    return products;
}
constexpr Products PRODUCTS = make_products();

struct Hash {
    uint32_t k0, k1, times = MIX_2, plus = 0;

    Hash(uint32_t k0, uint32_t k1) : k0(k0), k1(k1) {}

    // The h of the one in place ``own`` of several workers that round together.
    Hash(uint32_t k0, uint32_t k1, uint32_t own, uint32_t workers) : k0(k0), k1(k1) {
        if (workers == 1) return;
        const uint32_t alike = (workers + 1 - own % 2) / 2, others = workers - alike;  // by the parity of their places
        if (workers % 2) times *= others;
        plus = uint32_t((uint64_t(own / 2) << 32) / alike);
        if (own % 2) times = -times, plus = ~plus;
    }

    // h of the coordinates c .. c + W - 1.  Where c is a multiple of W they differ in their lowest bits only, so the
    // first steps are the same for all but those bits, and the first product is a sum.
    template <bool ALIGNED>
    U at(uint32_t c) const {
        const U x = nearly<ALIGNED>(c);
        return x ^ (x >> 16);
    }

    // h but for its last steps, the first of which leaves the top bit alone.
    template <bool ALIGNED>
    U nearly(uint32_t c) const {
        U x;
        if (ALIGNED) {
            uint32_t y = c ^ k0;
            y ^= y >> 16;
            x = load<U>(PRODUCTS.of[y % W]) + (y / W * W) * MIX_1;
        } else {
            uint32_t lanes[W];
            for (uint32_t lane = 0; lane < W; ++lane) lanes[lane] = lane;
            x = (load<U>(lanes) + c) ^ k0;
            x ^= x >> 16;
            x *= MIX_1;
        }
        x = x ^ (x >> 15) ^ k1;
        return x * times + plus;
    }
};
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
