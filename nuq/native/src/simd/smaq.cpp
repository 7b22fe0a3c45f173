// SmaQ's codes, a block at a time: what nuq/kernels/smaq.py specifies.
#include "../smaq.h"

#include <algorithm>
#include <limits>

#include "packing.h"
#include "widen.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int LANES_SUMMED = 16;
constexpr int STEP = 4 * W;  // codes made at a time
constexpr int64_t ROOM = SMAQ_BLOCK + 128;

inline int64_t length_of(const Smaq& job, int64_t block) { return std::min(SMAQ_BLOCK, job.size - block * SMAQ_BLOCK); }

// The block in float32: in place, or in ``room`` (ROOM) with zeros behind where it is of another type or cut short.
inline const float* floats(const Smaq& job, int64_t block, float* room) {
    const int64_t first = block * SMAQ_BLOCK, length = length_of(job, block);
    const float* x = widened(job.vector, job.dtype, first, length, room);
    if (length == SMAQ_BLOCK) {
        if (x != room)
            for (int64_t i = 0; i < SMAQ_BLOCK; i += 16) prefetch(x + i + AHEAD);
        return x;
    }
    if (x != room) std::memcpy(room, x, size_t(length) * sizeof(float));
    std::memset(room + length, 0, size_t(SMAQ_BLOCK - length) * sizeof(float));
    return room;
}

inline U select(U mask, U yes, U no) { return (yes & mask) | (no & ~mask); }
inline F select(U mask, F yes, F no) { return (F)select(mask, (U)yes, (U)no); }

// --- measure -------------------------------------------------------------------------------------------------------

struct Sums {
    D sum, squares;
};

template <bool CENTRED>
void sums_of(const float* x, double pivot, double& sum, double& squares) {
    constexpr int PARTS = LANES_SUMMED / (W / 2);
    Sums sums[PARTS] = {};
    for (int64_t i = 0; i < SMAQ_BLOCK; i += LANES_SUMMED)
        for (int part = 0; part < PARTS; ++part) {
            D d = widened(x + i + part * (W / 2));
            if (CENTRED) {  // the zeros' place is taken by the pivot, which adds nothing
                typedef int64_t L __attribute__((vector_size(4 * W), may_alias));
                const L zero = d == D{};
                d = (D)((L)(d - pivot) & ~zero);
            }
            sums[part].sum += d;
            sums[part].squares += d * d;
        }
    double lanes[2][LANES_SUMMED];
    for (int part = 0; part < PARTS; ++part) {
        store(lanes[0] + part * (W / 2), sums[part].sum);
        store(lanes[1] + part * (W / 2), sums[part].squares);
    }
    for (auto& each : lanes)
        for (int h = LANES_SUMMED / 2; h > 0; h /= 2)
            for (int i = 0; i < h; ++i) each[i] += each[i + h];
    sum = lanes[0][0], squares = lanes[1][0];
}

void bounds_of(const float* x, SmaqBounds& bounds) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    F lowest = splat(infinity), highest = splat(-infinity);
    I zeros{};
    for (int64_t i = 0; i < SMAQ_BLOCK; i += W) {
        const F value = load<F>(x + i);
        const U zero = (U)(value == F{});
        zeros += (I)zero;
        lowest = at_most(lowest, select(zero, splat(infinity), value));
        highest = at_least(highest, select(zero, splat(-infinity), value));
    }
    float low[W], high[W];
    int32_t none[W];
    store(low, lowest), store(high, highest), store(none, zeros);
    for (int lane = 0; lane < W; ++lane) {
        bounds.lowest = std::min(bounds.lowest, low[lane]);
        bounds.highest = std::max(bounds.highest, high[lane]);
        bounds.zeros -= none[lane];
    }
}

// --- encode --------------------------------------------------------------------------------------------------------

// The nonzeros of a block into ``to`` (ROOM), a bit for each into ``mask``; their number.
int64_t nonzeros(const float* x, uint8_t* mask, int64_t mask_bytes, float* to) {
    int64_t count = 0;
    uint8_t bits[SMAQ_BLOCK / 8];
#if defined(NUQ_ISA_AVX512)
    for (int64_t i = 0; i < SMAQ_BLOCK; i += W) {
        const __m512 value = _mm512_loadu_ps(x + i);
        const __mmask16 nonzero = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        _mm512_storeu_ps(to + count, _mm512_maskz_compress_ps(nonzero, value));
        store(bits + i / 8, uint16_t(nonzero));
        count += __builtin_popcount(nonzero);
    }
#else
    for (int64_t i = 0; i < SMAQ_BLOCK; i += 8) {
        unsigned byte = 0;
        for (int bit = 0; bit < 8; ++bit) {
            const unsigned nonzero = x[i + bit] != 0.0f;
            to[count] = x[i + bit];
            count += nonzero;
            byte |= nonzero << bit;
        }
        bits[i / 8] = uint8_t(byte);
    }
#endif
    std::memcpy(mask, bits, size_t(mask_bytes));
    return count;
}

template <bool STOCHASTIC>
inline U code(const Smaq& job, const Hash& hash, F x, uint32_t c) {
    const U z = (U)((x * job.factor - job.mean) * job.inverse);
    const F size = (F)(z & 0x7FFFFFFF);
    const U outside = (U)(size > splat(job.threshold));
    const F large = at_most((size - job.threshold) * job.large_slope, splat(job.large_most));
    const F q = select(outside, large, at_most(size * job.small_slope, splat(job.small_most)));
    const U turned = (U)((I)z >> 31) & (job.workers > 1 ? 0xFFFFFFFF : 0);
    const U noise = STOCHASTIC ? (hash.at<true>(c) ^ turned) >> 8 : splat(uint32_t(1) << 23);
    const U magnitude = ((U)truncate(q * 0x1p24f) + noise) >> 24;
    const int size_bits = job.low_bits - 1;
    const U below = magnitude & uint32_t(ones(size_bits));
    return below | shifted_right(z, 31 - size_bits) & (1u << size_bits) | (magnitude - below) << 1 | (outside & 0x80);
}

template <bool STOCHASTIC>
void codes_of(const Smaq& job, const float* x, int64_t count, uint32_t first, uint8_t* to) {
    const Hash hash(job.k0, job.k1, job.own, job.workers);
    const auto at = [&](int64_t i) { return code<STOCHASTIC>(job, hash, load<F>(x + i), first + uint32_t(i)); };
    for (int64_t i = 0; i < count; i += STEP) store(to + i, narrowed(at(i), at(i + W), at(i + 2 * W), at(i + 3 * W)));
    std::memset(to + count, 0, 8);
}

// The mask, for eight codes, of the bits that only outliers have.
inline uint64_t extra_mask(uint64_t codes, const Smaq& job) {
    return (codes >> 7 & repeated(1)) * (ones(job.extra_bits) << job.low_bits);
}

inline uint64_t gathered_bits(uint64_t codes, uint64_t mask, const Smaq& job) {
#if defined(__BMI2__)
    (void)job;
    return _pext_u64(codes, mask);
#else
    uint64_t bits = 0;
    int at = 0;
    for (int i = 0; i < 64; i += 8)
        if (mask >> i & 0xFF) {
            bits |= (codes >> (i + job.low_bits) & ones(job.extra_bits)) << at;
            at += job.extra_bits;
        }
    return bits;
#endif
}

inline uint64_t scattered_bits(uint64_t bits, uint64_t mask, const Smaq& job) {
#if defined(__BMI2__)
    (void)job;
    return _pdep_u64(bits, mask);
#else
    uint64_t codes = 0;
    for (int i = 0; i < 64; i += 8)
        if (mask >> i & 0xFF) {
            codes |= (bits & ones(job.extra_bits)) << (i + job.low_bits);
            bits >>= job.extra_bits;
        }
    return codes;
#endif
}

// The bits of outliers alone, one after another; their number.  Writes up to 8 bytes beyond.
int64_t write_extra(const uint8_t* codes, int64_t count, const Smaq& job, uint8_t* to) {
    uint64_t waiting = 0;
    int filled = 0;
    int64_t outliers = 0;
    for (int64_t i = 0; i < count; i += 8) {
        const uint64_t word = load<uint64_t>(codes + i), mask = extra_mask(word, job);
        const int here = __builtin_popcountll(word & repeated(0x80));
        waiting |= gathered_bits(word, mask, job) << filled;
        filled += here * job.extra_bits;
        outliers += here;
        store(to, waiting);
        to += filled >> 3;
        waiting >>= filled & ~7;
        filled &= 7;
    }
    return outliers;
}

// --- decode --------------------------------------------------------------------------------------------------------

int64_t bits_set(const uint8_t* data, int64_t bytes) {
    int64_t set = 0, i = 0;
    for (; i + 8 <= bytes; i += 8) set += __builtin_popcountll(load<uint64_t>(data + i));
    for (; i < bytes; ++i) set += __builtin_popcount(data[i]);
    return set;
}

void read_codes(const Smaq& job, const SmaqParts& parts, const uint8_t* classes, int64_t count, uint8_t* codes) {
    const uint8_t *low = classes + parts.classes, *extra = low + parts.low;
    int64_t at = 0;  // bits of extra
    for (int64_t i = 0; i < count; i += 8, low += job.low_bits) {
        const uint64_t outside = spread(classes[i / 8], 1) << 7;
        const uint64_t bits = load<uint64_t>(extra + (at >> 3)) >> (at & 7);
        store(codes + i, spread(load<uint64_t>(low), job.low_bits) | outside |
                             scattered_bits(bits, extra_mask(outside, job), job));
        at += __builtin_popcount(classes[i / 8]) * job.extra_bits;
    }
}

inline void put(float* to, F value, bool accumulate) { store(to, accumulate ? load<F>(to) + value : value); }

// values, one for every bit that is set, to their indices among ``length``.
void expand(const float* values, const uint8_t* mask, int64_t length, float* to, bool accumulate) {
    int64_t next = 0, i = 0;
#if defined(NUQ_ISA_AVX512)
    for (; i + W <= length; i += W) {
        const __mmask16 nonzero = load<uint16_t>(mask + i / 8);
        put(to + i, (F)_mm512_maskz_expand_ps(nonzero, _mm512_loadu_ps(values + next)), accumulate);
        next += __builtin_popcount(nonzero);
    }
#endif
    for (; i < length; ++i) {
        const int nonzero = mask[i / 8] >> (i % 8) & 1;
        const float value = nonzero ? values[next] : 0.0f;
        to[i] = accumulate ? to[i] + value : value;
        next += nonzero;
    }
}
}  // namespace

void smaq_measure(const Smaq& job, int64_t block, double pivot, double& sum, double& squares, SmaqBounds& bounds) {
    alignas(64) float room[ROOM];
    const float* x = floats(job, block, room);
    if (pivot == 0.0) sums_of<false>(x, pivot, sum, squares);
    else sums_of<true>(x, pivot, sum, squares);
    bounds_of(x, bounds);
    bounds.zeros -= SMAQ_BLOCK - length_of(job, block);
}

uint8_t* smaq_encode(const Smaq& job, int64_t block, uint16_t& num_codes, uint16_t& outliers, uint8_t* to) {
    alignas(64) float room[ROOM], kept[ROOM];
    alignas(64) uint8_t codes[ROOM];
    const int64_t length = length_of(job, block);
    const float* x = floats(job, block, room);
    int64_t count = length;
    if (job.masked) {
        const int64_t mask = (length + 7) / 8;
        count = nonzeros(x, to, mask, kept);
        std::memset(kept + count, 0, STEP * sizeof(float));
        x = kept, to += mask;
    }
    num_codes = uint16_t(count), outliers = 0;
    if (job.constant) return to;
    (job.stochastic ? codes_of<true> : codes_of<false>)(job, x, count, uint32_t(block * SMAQ_BLOCK), codes);
    for (int64_t i = 0; i < count; i += 8) *to++ = uint8_t(squeezed(load<uint64_t>(codes + i) >> 7 & repeated(1), 1));
    uint8_t* const end = to + (count * job.low_bits + 7) / 8;
    const uint64_t kept_bits = repeated(ones(job.low_bits));
    for (int64_t i = 0; i < count; i += 8, to += job.low_bits)
        store(to, squeezed(load<uint64_t>(codes + i) & kept_bits, job.low_bits));
    outliers = uint16_t(write_extra(codes, count, job, end));
    return end + (outliers * job.extra_bits + 7) / 8;
}

bool smaq_whole(const Smaq& job, int64_t length, int64_t codes, int64_t outliers, const uint8_t* from) {
    const SmaqParts parts(job, length, codes, outliers);
    return (!job.masked || bits_set(from, parts.mask) == codes) &&
           bits_set(from + parts.mask, parts.classes) == (job.constant ? 0 : outliers);
}

void smaq_decode(const Smaq& job, int64_t block, int64_t count, int64_t outliers, const uint8_t* from) {
    alignas(64) uint8_t codes[ROOM];
    alignas(64) float values[ROOM];
    const int64_t length = length_of(job, block);
    const SmaqParts parts(job, length, count, outliers);
    float* const to = job.total + block * SMAQ_BLOCK;
    if (job.constant) {
        std::fill(values, values + count, job.table[0]);
    } else {
        read_codes(job, parts, from + parts.mask, count, codes);
        int64_t i = 0;
        if (!job.masked)
            for (; i + W <= count; i += W) put(to + i, gathered(job.table, load_codes(codes + i)), job.accumulate);
        else
            for (; i + W <= count; i += W) store(values + i, gathered(job.table, load_codes(codes + i)));
        for (; i < count; ++i) {
            const float value = job.table[codes[i]];
            if (job.masked) values[i] = value;
            else to[i] = job.accumulate ? to[i] + value : value;
        }
    }
    if (job.masked) expand(values, from, length, to, job.accumulate);
}
}  // namespace NUQ_ISA
}  // namespace nuq
