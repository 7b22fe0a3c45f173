// Codes as packed bytes and back: step 7 of the specification (nuq/kernels/bit_packing.py).
#pragma once
#include <algorithm>

#include "../quantize.h"
#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
// codes that are a whole number of bytes in every packing: what pack may read behind the last code
constexpr int GROUP = 40;

inline uint64_t ones(int bits) { return bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1; }
inline uint64_t repeated(uint64_t byte) { return byte * 0x0101010101010101u; }

// Of every pair of fields that are 2^k bits apart and ``bits`` wide: the upper one moves down to the lower one, or
// back.
inline uint64_t joined(uint64_t word, int apart, int bits, uint64_t lower) {
    return (word & lower) | (word >> apart & lower) << bits;
}
inline uint64_t parted(uint64_t word, int apart, int bits, uint64_t lower) {
    return (word & lower) | (word >> bits & lower) << apart;
}

// Eight codes, a byte each, to 8 * bits bits, and back.
inline uint64_t squeezed(uint64_t codes, int bits) {
#if defined(__BMI2__)
    return _pext_u64(codes, repeated(ones(bits)));
#else
    codes = joined(codes, 8, bits, 0x00FF00FF00FF00FF);
    codes = joined(codes, 16, 2 * bits, 0x0000FFFF0000FFFF);
    return joined(codes, 32, 4 * bits, 0x00000000FFFFFFFF);
#endif
}

inline uint64_t spread(uint64_t word, int bits) {
#if defined(__BMI2__)
    return _pdep_u64(word, repeated(ones(bits)));
#else
    word = parted(word, 32, 4 * bits, ones(4 * bits));
    word = parted(word, 16, 2 * bits, ones(2 * bits) * 0x0000000100000001u);
    return parted(word, 8, bits, ones(bits) * 0x0001000100010001u);
#endif
}

// The five digits of one byte, lowest first, as the low five bytes of a word.
struct Digits {
    uint64_t of[256];
};
constexpr Digits make_digits() {
    Digits digits{};
    for (uint64_t byte = 0; byte < 256; ++byte)
        digits.of[byte] = byte % 3 | byte / 3 % 3 << 8 | byte / 9 % 3 << 16 | byte / 27 % 3 << 24 | byte / 81 % 3 << 32;
    return digits;
}
constexpr Digits DIGITS = make_digits();

// count codes, with room for GROUP more behind them, to exactly their bytes.
inline void pack(uint8_t* codes, int64_t count, int packing, uint8_t* to) {
    std::memset(codes + count, 0, GROUP);
    if (packing == TERNARY) {
        // The sum c0 + 3 c1 + 9 c2 + 27 c3 + 81 c4 is byte 4 of a product; no byte below it carries.
        constexpr uint64_t powers = 81 | 27 << 8 | 9 << 16 | 3 << 24 | uint64_t(1) << 32;
        for (int64_t i = 0; i < count; i += 5) *to++ = uint8_t((load<uint64_t>(codes + i) & ones(40)) * powers >> 32);
        return;
    }
    if (packing == 8) {
        std::memcpy(to, codes, size_t(count));
        return;
    }
    const int64_t bytes = (count * packing + 7) / 8;
    int64_t i = 0, at = 0;
    for (; at + 8 <= bytes; i += 8, at += packing) store(to + at, squeezed(load<uint64_t>(codes + i), packing));
    for (; at < bytes; i += 8, at += packing) {
        const uint64_t word = squeezed(load<uint64_t>(codes + i), packing);
        std::memcpy(to + at, &word, size_t(std::min<int64_t>(packing, bytes - at)));
    }
}

// The codes of four vectors to their BITS * W / 2 bytes (0: bits, of any number; then up to 7 bytes behind them are
// overwritten).
template <int BITS>
inline void put(Quad codes, int bits, uint8_t* to) {
#if defined(NUQ_ISA_AVX512)
    const __m512i c = (__m512i)codes;
    if (BITS == 1) {
        store(to, uint64_t(_mm512_test_epi8_mask(c, c)));
        return;
    }
    if (BITS == 2) {
        const __m512i nibbles = _mm512_maddubs_epi16(c, _mm512_set1_epi16(0x0401));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm512_cvtepi32_epi8(_mm512_madd_epi16(nibbles, _mm512_set1_epi32(0x00100001))));
        return;
    }
    if (BITS == 4) {
        const __m512i bytes = _mm512_maddubs_epi16(c, _mm512_set1_epi16(0x1001));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(bytes));
        return;
    }
#elif defined(NUQ_ISA_AVX2)
    const __m256i c = (__m256i)codes;
    if (BITS == 1) {
        store(to, uint32_t(_mm256_movemask_epi8(_mm256_slli_epi16(c, 7))));
        return;
    }
    if (BITS == 4) {
        const __m256i bytes = _mm256_maddubs_epi16(c, _mm256_set1_epi16(0x1001));
        const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi16(bytes, bytes), 0x08);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(halves));
        return;
    }
#endif
    if (BITS == 8) {
        store(to, codes);
        return;
    }
    alignas(64) uint8_t bytes[4 * W];
    store(bytes, codes);
    for (int i = 0; i < W / 2; ++i) store(to + i * bits, squeezed(load<uint64_t>(bytes + 8 * i), bits));
}

inline void pack(uint16_t* codes, int64_t count, int packing, uint8_t* to) {
    if (packing == 16) {
        std::memcpy(to, codes, size_t(count) * 2);
        return;
    }
    uint32_t word = 0;
    int waiting = 0;
    for (int64_t i = 0; i < count; ++i) {
        word |= uint32_t(codes[i]) << waiting;
        for (waiting += packing; waiting >= 8; waiting -= 8, word >>= 8) *to++ = uint8_t(word);
    }
    if (waiting) *to = uint8_t(word);
}

// count codes, into room for GROUP more.
inline void unpack(const uint8_t* from, int64_t count, int packing, uint8_t* codes) {
    if (packing == TERNARY) {
        for (int64_t i = 0; i < count; i += 5) store(codes + i, DIGITS.of[*from++]);
        return;
    }
    if (packing == 8) {
        std::memcpy(codes, from, size_t(count));
        return;
    }
    const int64_t bytes = (count * packing + 7) / 8;
    int64_t i = 0, at = 0;
    for (; at + 8 <= bytes; i += 8, at += packing) store(codes + i, spread(load<uint64_t>(from + at), packing));
    for (; at < bytes; i += 8, at += packing) {
        uint64_t word = 0;
        std::memcpy(&word, from + at, size_t(std::min<int64_t>(packing, bytes - at)));
        store(codes + i, spread(word, packing));
    }
}

inline void unpack(const uint8_t* from, int64_t count, int packing, uint16_t* codes) {
    if (packing == 16) {
        std::memcpy(codes, from, size_t(count) * 2);
        return;
    }
    uint32_t word = 0;
    int waiting = 0;
    for (int64_t i = 0; i < count; ++i) {
        for (; waiting < packing; waiting += 8) word |= uint32_t(*from++) << waiting;
        codes[i] = uint16_t(word & ones(packing));
        word >>= packing;
        waiting -= packing;
    }
}
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
