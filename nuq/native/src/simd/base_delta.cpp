// Blocks of deltas from zero or from one base: what nuq/coding/base_delta.py specifies.
#include "../base_delta.h"

#include <algorithm>

#include "packing.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int PARTS = int(DELTA_BLOCK) / (4 * W);
constexpr int BIAS = 127, LEAST_EXPONENT = -110, MOST_EXPONENT = 128;

typedef int8_t Signed __attribute__((vector_size(4 * W), may_alias));

// The words or the codes of a block.
struct alignas(64) Block {
    Quad parts[PARTS];
    uint8_t operator[](int i) const { return reinterpret_cast<const uint8_t*>(parts)[i]; }
};

inline float power_of_two(int exponent) {  // of a normal number
    const uint32_t bits = uint32_t(exponent + 127) << 23;
    float value;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

// The codes of the deltas from a base.
inline Block coded(const Block& words, uint8_t base) {
    Block codes;
    for (int i = 0; i < PARTS; ++i) {
        const Quad delta = words.parts[i] - base;
        codes.parts[i] = (delta + delta) ^ (Quad)((Signed)delta < Signed{});
    }
    return codes;
}

inline int width_of(const Block& codes) {
    uint64_t each[DELTA_BLOCK / 8], all = 0;
    std::memcpy(each, codes.parts, sizeof each);
    for (const uint64_t word : each) all |= word;
    all |= all >> 32, all |= all >> 16, all |= all >> 8;
    all &= 0xFF;
    return all ? 64 - __builtin_clzll(all) : 0;
}

// The codes that take more than ``width`` bits, which is below 8.
inline uint64_t beyond(const Block& codes, int width) {
    const int high = 0xFF << width & 0xFF;
    uint64_t mask = 0;
#if defined(NUQ_ISA_AVX512)
    mask = _mm512_test_epi8_mask((__m512i)codes.parts[0], _mm512_set1_epi8(char(high)));
#elif defined(NUQ_ISA_AVX2)
    for (int i = 0; i < PARTS; ++i) {
        const __m256i kept = _mm256_and_si256((__m256i)codes.parts[i], _mm256_set1_epi8(char(high)));
        const __m256i none = _mm256_cmpeq_epi8(kept, _mm256_setzero_si256());
        mask |= uint64_t(~uint32_t(_mm256_movemask_epi8(none))) << (32 * i);
    }
#elif defined(__SSE2__)
    for (int i = 0; i < PARTS; ++i) {
        const __m128i none =
            _mm_cmpeq_epi8(_mm_and_si128((__m128i)codes.parts[i], _mm_set1_epi8(char(high))), _mm_setzero_si128());
        mask |= uint64_t(~_mm_movemask_epi8(none) & 0xFFFF) << (16 * i);
    }
#else
    for (int i = 0; i < DELTA_BLOCK; ++i) mask |= uint64_t((codes[i] & high) != 0) << i;
#endif
    return mask;
}

// A byte of ones for every bit that is set.
inline Block bytes_of(uint64_t mask) {
    Block bytes;
#if defined(NUQ_ISA_AVX512)
    bytes.parts[0] = (Quad)_mm512_movm_epi8(mask);
#else
    for (int i = 0; i < 8; ++i)
        store(reinterpret_cast<uint8_t*>(bytes.parts) + 8 * i, spread(mask >> (8 * i) & 0xFF, 1) * 0xFF);
#endif
    return bytes;
}

template <bool STOCHASTIC>
inline U word_of(const BaseDelta& job, const Hash& noise, F x, float factor, uint32_t c) {
    const F most = splat(float((1 << (job.bits - 1)) - 1)), y = clamped(x * factor, most);
    if (!STOCHASTIC) return (U)(y + 0x1.8p23f) & 0xFF;  // to the nearest, ties to even
    const I cut = truncate(y), whole = cut + (I)(to_float(cut) > y);
    return add_where_below((U)whole, to_float(noise.at<true>(c) >> 8) * 0x1p-24f, y - to_float(whole)) & 0xFF;
}

// The words of a block, and its exponent.
template <bool STOCHASTIC>
inline Block words_of(const BaseDelta& job, const Hash& noise, int64_t block, int& exponent) {
    const int64_t first = block * DELTA_BLOCK, length = std::min(DELTA_BLOCK, job.size - first);
    const float* x = job.vector + first;
    float room[DELTA_BLOCK] = {};
    if (length < DELTA_BLOCK) {
        std::memcpy(room, x, size_t(length) * sizeof(float));
        x = room;
    }
    I sizes{};
    for (int i = 0; i < DELTA_BLOCK; i += W) {
        prefetch(x + i + AHEAD);
        sizes = larger(sizes, load<I>(x + i) & 0x7FFFFFFF);
    }
    int32_t lanes[W], largest = 0;
    store(lanes, sizes);
    for (const int32_t lane : lanes) largest = std::max(largest, lane);
    exponent = std::max((largest >> 23) - 126, LEAST_EXPONENT);
    float size;
    std::memcpy(&size, &largest, sizeof size);
    exponent +=
        exponent < MOST_EXPONENT && size * power_of_two(job.bits - 1 - exponent) > float((1 << (job.bits - 1)) - 1);
    const float factor = power_of_two(job.bits - 1 - exponent);
    Block words;
    for (int i = 0; i < PARTS; ++i) {
        U each[4];
        for (int j = 0; j < 4; ++j) {
            const int at = (4 * i + j) * W;
            each[j] = word_of<STOCHASTIC>(job, noise, load<F>(x + at), factor, uint32_t(first) + uint32_t(at));
        }
        words.parts[i] = narrowed(each[0], each[1], each[2], each[3]);
    }
    return words;
}

// One block's bytes; returns where they end.
inline uint8_t* write(const Block& words, int bits, uint8_t& kind, uint8_t* to) {
    const Block plain = coded(words, 0), own = coded(words, words[0]);
    Block codes = plain;
    int width = width_of(plain), size = 8 * width;
    kind = 0;
    if (!width) return to;
    uint8_t base = words[0];
    uint64_t mask = 0;
    const int width_of_own = width_of(own);
    if (8 * width_of_own + 1 < size) {
        kind = BASE_KIND, width = width_of_own, size = 8 * width + 1;
        codes = own;
    }
    for (int tried = 0; tried < bits - 1 && 8 * tried + 9 < size; ++tried) {
        const uint64_t outside = beyond(plain, tried);
        const uint8_t start = words[__builtin_ctzll(outside)];
        const Block deltas = coded(words, start);
        if (beyond(deltas, tried) & outside) continue;
        kind = MIXED_KIND, width = tried, base = start, mask = outside;
        const Block outside_bytes = bytes_of(mask);
        for (int i = 0; i < PARTS; ++i)
            codes.parts[i] = (deltas.parts[i] & outside_bytes.parts[i]) | (plain.parts[i] & ~outside_bytes.parts[i]);
        break;
    }
    if (kind) *to++ = base;
    if (kind == MIXED_KIND) store(to, mask), to += 8;
    kind = uint8_t(kind + width);
    uint64_t eights[DELTA_BLOCK / 8];
    std::memcpy(eights, codes.parts, sizeof eights);
    for (const uint64_t eight : eights) store(to, squeezed(eight, width)), to += width;
    return to;
}
}  // namespace

uint8_t* base_delta_encode(const BaseDelta& job, int64_t first, int64_t last, uint8_t* kinds, uint8_t* exponents,
                           uint8_t* to) {
    const Hash noise(job.k0, job.k1, job.own, job.workers);
    for (int64_t block = first; block < last; ++block) {
        int exponent;
        const Block words =
            job.stochastic ? words_of<true>(job, noise, block, exponent) : words_of<false>(job, noise, block, exponent);
        exponents[block] = uint8_t(exponent + BIAS);
        to = write(words, job.bits, kinds[block], to);
    }
    return to;
}

void base_delta_decode(const BaseDelta& job, int64_t block, int kind, int exponent, const uint8_t* from) {
    const int width = kind & 15;
    const uint8_t base = kind >= BASE_KIND ? *from++ : 0;
    Block words, outside_bytes;
    if (kind >= MIXED_KIND) outside_bytes = bytes_of(load<uint64_t>(from)), from += 8;
    uint64_t eights[DELTA_BLOCK / 8];
    for (uint64_t& eight : eights) eight = spread(load<uint64_t>(from), width), from += width;
    std::memcpy(words.parts, eights, sizeof eights);
    for (int i = 0; i < PARTS; ++i) {
        const Quad code = words.parts[i];
        const Quad delta = (code >> 1) ^ -(code & 1);
        words.parts[i] = delta + (kind >= MIXED_KIND ? outside_bytes.parts[i] & base : Quad{} + base);
    }
    const float unit = power_of_two(exponent - BIAS - (job.bits - 1));
    const auto number = [&](int at) {
        const I word = (I)(load_codes(reinterpret_cast<const uint8_t*>(words.parts) + at) << 24) >> 24;
        return to_float(word) * unit;
    };
    const int64_t length = std::min(DELTA_BLOCK, job.size - block * DELTA_BLOCK);
    float* const to = job.total + block * DELTA_BLOCK;
    if (length == DELTA_BLOCK) {
        for (int at = 0; at < DELTA_BLOCK; at += W)
            store(to + at, job.accumulate ? load<F>(to + at) + number(at) : number(at));
        return;
    }
    float room[DELTA_BLOCK];
    for (int at = 0; at < DELTA_BLOCK; at += W) store(room + at, number(at));
    for (int64_t i = 0; i < length; ++i) to[i] = job.accumulate ? to[i] + room[i] : room[i];
}
}  // namespace NUQ_ISA
}  // namespace nuq
