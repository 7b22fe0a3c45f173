// rANS (Duda 2013, arXiv 1311.2540) with interleaved lanes: code i belongs to lane i mod lanes, and all lanes share one
// stream of 16-bit words, in the order in which the decoder wants them, so that a vector of states reads its words with
// one load (Giesen 2014, arXiv 1402.3392).
#include "../entropy.h"

#include <algorithm>
#include <cstring>
#if defined(NUQ_ISA_AVX2) || defined(NUQ_ISA_AVX512)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC's own header, about its registers of undefined content
#endif
#include <immintrin.h>
#endif

namespace nuq {
namespace NUQ_ISA {
namespace {

inline uint16_t word_at(const uint8_t* words, size_t index) {
    uint16_t word;
    std::memcpy(&word, words + 2 * index, 2);
    return word;
}

template <typename Code, bool CONTEXTS>
inline size_t entry_of(const RansModel& model, const Code* codes, const uint8_t* contexts, size_t i) {
    return CONTEXTS ? size_t(contexts[i]) * model.num_symbols + codes[i] : codes[i];
}

// Codes [first, last) from the last to the first.
template <typename Code, bool CONTEXTS>
uint8_t* encode_scalar(const RansModel& model, const Code* codes, const uint8_t* contexts, size_t first, size_t last,
                       uint32_t* states, uint8_t* out) {
    const RansEncodeEntry* entries = model.entries.data();
    const size_t mask = model.lanes - 1;
    for (size_t i = last; i-- > first;) {
        const RansEncodeEntry& entry = entries[entry_of<Code, CONTEXTS>(model, codes, contexts, i)];
        uint32_t x = states[i & mask];
        const unsigned full = x >= entry.limit;  // arithmetic, not a branch: it would be a guess
        const uint16_t low = uint16_t(x);
        std::memcpy(out - 2, &low, 2);
        out -= 2 * full;
        x >>= 16 * full;
        const uint32_t quotient = uint32_t(uint64_t(x) * entry.reciprocal >> 32) >> entry.shift;
        states[i & mask] = x + entry.bias + quotient * entry.complement;
    }
    return out;
}

#if defined(NUQ_ISA_AVX512)
inline __m512i load_codes(const uint8_t* codes) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}
inline __m512i load_codes(const uint16_t* codes) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
}

// What a symbol makes of x: (x / f) 2^bits + x mod f.  Floats rounded towards zero never exceed the quotient, and being
// less than 2^(31 - bits) <= 2^19 it is missed by less than 1/8: cut to an integer, by one at most, which the remainder
// shows.
inline __m512i spread(__m512i x, __m512i f, __m512i total, __m128i bits) {
    constexpr int towards_zero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    const __m512 ratio =
        _mm512_div_round_ps(_mm512_cvt_roundepi32_ps(x, towards_zero), _mm512_cvtepi32_ps(f), towards_zero);
    const __m512i quotient = _mm512_cvttps_epi32(ratio);
    const __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, f));
    const __m512i sum = _mm512_add_epi32(_mm512_sll_epi32(quotient, bits), rest);
    return _mm512_mask_add_epi32(sum, _mm512_cmpge_epi32_mask(rest, f), sum, _mm512_sub_epi32(total, f));
}

// Codes [0, last), last a multiple of 32.  IN_REGISTERS: the table has at most 32 entries and is looked up without
// memory.
template <typename Code, bool CONTEXTS, bool IN_REGISTERS>
uint8_t* encode_vectors(const RansModel& model, const Code* codes, const uint8_t* contexts, size_t last,
                        uint32_t* states, uint8_t* out) {
    uint32_t few[32] = {};
    if (IN_REGISTERS) std::copy(model.packed.begin(), model.packed.end(), few);
    const __m512i table_low = _mm512_loadu_si512(few), table_high = _mm512_loadu_si512(few + 16);
    const __m512i num_symbols = _mm512_set1_epi32(model.num_symbols), total = _mm512_set1_epi32(1 << model.bits);
    const __m512i low_half = _mm512_set1_epi32(0xFFFF), one = _mm512_set1_epi32(1);
    const __m128i bits = _mm_cvtsi32_si128(model.bits), headroom = _mm_cvtsi32_si128(31 - model.bits);
    auto entries_at = [&](size_t at) {
        __m512i index = load_codes(codes + at);
        if (CONTEXTS) index = _mm512_add_epi32(index, _mm512_mullo_epi32(load_codes(contexts + at), num_symbols));
        return IN_REGISTERS ? _mm512_permutex2var_epi32(table_low, index, table_high)
                            : _mm512_i32gather_epi32(index, model.packed.data(), 4);
    };
    if (!last) return out;
    __m512i x[2] = {_mm512_loadu_si512(states), _mm512_loadu_si512(states + 16)};
    __m512i next[2] = {entries_at(last - 32), entries_at(last - 16)};
    for (size_t i = last; i > 0; i -= 32) {
        // One position ahead, because a gather waits for the stores before it, whose place is known last.
        const __m512i entries[2] = {next[0], next[1]};
        const size_t ahead = i > 32 ? i - 64 : 0;
        next[0] = entries_at(ahead);
        next[1] = entries_at(ahead + 16);
#pragma GCC unroll 2
        for (int half = 1; half >= 0; --half) {
            const __m512i entry = entries[half];
            const __m512i f = _mm512_add_epi32(_mm512_and_si512(entry, low_half), one);
            const __mmask16 full = _mm512_cmpge_epu32_mask(x[half], _mm512_sll_epi32(f, headroom));
            const int words = __builtin_popcount(full);
            const __m256i lows = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(full, x[half]));
            out -= 2 * words;
            _mm256_mask_storeu_epi16(out, __mmask16((1u << words) - 1), lows);
            const __m512i kept = _mm512_mask_srli_epi32(x[half], full, x[half], 16);
            x[half] = _mm512_add_epi32(spread(kept, f, total, bits), _mm512_srli_epi32(entry, 16));
        }
    }
    _mm512_storeu_si512(states, x[0]);
    _mm512_storeu_si512(states + 16, x[1]);
    return out;
}
#endif

template <typename Code, bool CONTEXTS>
size_t encode(const RansModel& model, const Code* codes, const uint8_t* contexts, size_t count, uint8_t* end) {
    uint32_t states[MAX_LANES];
    std::fill(states, states + MAX_LANES, RANS_LOW);
    size_t left = count;
    uint8_t* out = end;
#if defined(NUQ_ISA_AVX512)
    if (model.lanes == 32) {
        left = count / 32 * 32;
        out = encode_scalar<Code, CONTEXTS>(model, codes, contexts, left, count, states, out);
        out = model.packed.size() <= 32
                  ? encode_vectors<Code, CONTEXTS, true>(model, codes, contexts, left, states, out)
                  : encode_vectors<Code, CONTEXTS, false>(model, codes, contexts, left, states, out);
        left = 0;
    }
#endif
    out = encode_scalar<Code, CONTEXTS>(model, codes, contexts, 0, left, states, out);
    out -= 4 * model.lanes;
    std::memcpy(out, states, 4 * model.lanes);
    return size_t(end - out);
}

// One code from one state, without renormalisation.
template <typename Code, bool WIDE, bool CONTEXTS>
inline uint32_t decode_one(const RansModel& model, uint32_t x, Code* codes, const uint8_t* contexts, size_t i) {
    size_t slot = x & ((1u << model.bits) - 1);
    if (CONTEXTS) slot |= size_t(contexts[i]) << model.bits;
    const uint32_t entry = model.slots[slot];
    codes[i] = Code(WIDE ? model.symbols[slot] : entry >> 24);
    constexpr uint32_t mask = WIDE ? 0xFFFF : 0xFFF;
    return ((entry & mask) + 1) * (x >> model.bits) + (WIDE ? entry >> 16 : entry >> 12 & mask);
}

// Codes [first, last); ``at`` counts words and may run past ``num_words`` in damaged data, but nothing is read there.
template <typename Code, bool WIDE, bool CONTEXTS>
void decode_scalar(const RansModel& model, const uint8_t* words, size_t num_words, size_t& at, Code* codes,
                   const uint8_t* contexts, size_t first, size_t last, uint32_t* states) {
    const size_t mask = model.lanes - 1;
    size_t i = first;
    while (i < last) {
        if (at < num_words) {  // as many codes as there are words for sure: no check and no branch
            const size_t stop = i + std::min(last - i, num_words - at);
            for (; i < stop; ++i) {
                const uint32_t x = decode_one<Code, WIDE, CONTEXTS>(model, states[i & mask], codes, contexts, i);
                const uint32_t low = x < RANS_LOW;
                states[i & mask] = x << (16 * low) | (word_at(words, at) & (0 - low));
                at += low;
            }
        } else {
            for (; i < last; ++i) {
                const uint32_t x = decode_one<Code, WIDE, CONTEXTS>(model, states[i & mask], codes, contexts, i);
                const uint32_t low = x < RANS_LOW;
                states[i & mask] = x << (16 * low);
                at += low;
            }
        }
    }
}

#if defined(NUQ_ISA_AVX512)
inline void store_codes(uint8_t* codes, __m512i symbols) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(symbols));
}
inline void store_codes(uint16_t* codes, __m512i symbols) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm512_cvtepi32_epi16(symbols));
}

inline __m512i next_words(const uint8_t* words, size_t num_words, size_t at) {
    if (at + 16 <= num_words)
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + 2 * at)));
    const __mmask16 there = __mmask16(at < num_words ? (1u << (num_words - at)) - 1 : 0);
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, words + 2 * std::min(at, num_words)));
}

// Codes [0, last), last a multiple of 32; all of them.
template <typename Code, bool WIDE, bool CONTEXTS>
size_t decode_vectors(const RansModel& model, const uint8_t* words, size_t num_words, size_t& at, Code* codes,
                      const uint8_t* contexts, size_t last, uint32_t* states) {
    const __m512i slot_mask = _mm512_set1_epi32((1 << model.bits) - 1), one = _mm512_set1_epi32(1);
    const __m512i entry_mask = _mm512_set1_epi32(WIDE ? 0xFFFF : 0xFFF), low_bound = _mm512_set1_epi32(RANS_LOW);
    const __m128i bits = _mm_cvtsi32_si128(model.bits);
    __m512i vectors[2] = {_mm512_loadu_si512(states), _mm512_loadu_si512(states + 16)};
    size_t next = at;
    for (size_t i = 0; i < last; i += 32) {
        for (int half = 0; half < 2; ++half) {
            const size_t place = i + 16 * half;
            __m512i x = vectors[half], slot = _mm512_and_si512(x, slot_mask);
            if (CONTEXTS) slot = _mm512_or_si512(slot, _mm512_sll_epi32(load_codes(contexts + place), bits));
            const __m512i entry = _mm512_i32gather_epi32(slot, model.slots.data(), 4);
            const __m512i f = _mm512_add_epi32(_mm512_and_si512(entry, entry_mask), one);
            const __m512i offset =
                WIDE ? _mm512_srli_epi32(entry, 16) : _mm512_and_si512(_mm512_srli_epi32(entry, 12), entry_mask);
            if (WIDE)  // 32 bits from every second byte pair; the narrowing drops the neighbour
                store_codes(codes + place, _mm512_and_si512(_mm512_i32gather_epi32(slot, model.symbols.data(), 2),
                                                            _mm512_set1_epi32(0xFFFF)));
            else
                store_codes(codes + place, _mm512_srli_epi32(entry, 24));
            x = _mm512_add_epi32(_mm512_mullo_epi32(f, _mm512_srl_epi32(x, bits)), offset);
            const __mmask16 low = _mm512_cmplt_epu32_mask(x, low_bound);
            const __m512i read = _mm512_maskz_expand_epi32(low, next_words(words, num_words, next));
            vectors[half] = _mm512_mask_or_epi32(x, low, _mm512_slli_epi32(x, 16), read);
            next += __builtin_popcount(low);
        }
    }
    at = next;
    _mm512_storeu_si512(states, vectors[0]);
    _mm512_storeu_si512(states + 16, vectors[1]);
    return last;
}
#endif

#if defined(NUQ_ISA_AVX2)
// at[mask][lane]: which of the next words is the lane's, where the lanes of the mask read one each.
struct Ranks {
    uint8_t at[256][8];
};

constexpr Ranks make_ranks() {
    Ranks ranks{};
    for (int mask = 0; mask < 256; ++mask)
        for (int lane = 0, rank = 0; lane < 8; rank += mask >> lane++ & 1) ranks.at[mask][lane] = uint8_t(rank);
    return ranks;
}

constexpr Ranks RANKS = make_ranks();

inline __m256i widened(const uint8_t* bytes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}

inline void store_codes(uint16_t* codes, __m256i symbols) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes),
                     _mm_packus_epi32(_mm256_castsi256_si128(symbols), _mm256_extracti128_si256(symbols, 1)));
}
inline void store_codes(uint8_t* codes, __m256i symbols) {
    const __m128i pairs = _mm_packus_epi32(_mm256_castsi256_si128(symbols), _mm256_extracti128_si256(symbols, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), _mm_packus_epi16(pairs, pairs));
}

// Codes [0, result): a multiple of 32, as far as whole vectors of words are there.
template <typename Code, bool WIDE, bool CONTEXTS>
size_t decode_vectors(const RansModel& model, const uint8_t* words, size_t num_words, size_t& at, Code* codes,
                      const uint8_t* contexts, size_t last, uint32_t* states) {
    const __m256i slot_mask = _mm256_set1_epi32((1 << model.bits) - 1), one = _mm256_set1_epi32(1);
    const __m256i entry_mask = _mm256_set1_epi32(WIDE ? 0xFFFF : 0xFFF), low_bound = _mm256_set1_epi32(RANS_LOW);
    const __m128i bits = _mm_cvtsi32_si128(model.bits);
    const int* slots = reinterpret_cast<const int*>(model.slots.data());
    const int* symbols = reinterpret_cast<const int*>(model.symbols.data());
    __m256i x[4];
    for (int k = 0; k < 4; ++k) x[k] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states + 8 * k));
    size_t next = at, i = 0;
    for (; i < last && next + 32 <= num_words; i += 32) {
        for (int k = 0; k < 4; ++k) {
            const size_t place = i + 8 * k;
            __m256i slot = _mm256_and_si256(x[k], slot_mask);
            if (CONTEXTS) slot = _mm256_or_si256(slot, _mm256_sll_epi32(widened(contexts + place), bits));
            const __m256i entry = _mm256_i32gather_epi32(slots, slot, 4);
            const __m256i f = _mm256_add_epi32(_mm256_and_si256(entry, entry_mask), one);
            const __m256i offset =
                WIDE ? _mm256_srli_epi32(entry, 16) : _mm256_and_si256(_mm256_srli_epi32(entry, 12), entry_mask);
            if (WIDE)
                store_codes(codes + place, _mm256_and_si256(_mm256_i32gather_epi32(symbols, slot, 2), entry_mask));
            else
                store_codes(codes + place, _mm256_srli_epi32(entry, 24));
            const __m256i stepped = _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srl_epi32(x[k], bits)), offset);
            const __m256i low = _mm256_cmpgt_epi32(low_bound, stepped);
            const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(low));
            const __m256i read = _mm256_permutevar8x32_epi32(
                _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words + 2 * next))),
                widened(RANKS.at[mask]));
            x[k] = _mm256_blendv_epi8(stepped, _mm256_or_si256(_mm256_slli_epi32(stepped, 16), read), low);
            next += __builtin_popcount(mask);
        }
    }
    at = next;
    for (int k = 0; k < 4; ++k) _mm256_storeu_si256(reinterpret_cast<__m256i*>(states + 8 * k), x[k]);
    return i;
}
#endif

template <typename Code, bool WIDE, bool CONTEXTS>
bool decode(const RansModel& model, const uint8_t* data, size_t size, Code* codes, const uint8_t* contexts,
            size_t count) {
    const size_t lanes = model.lanes;
    if (size < 4 * lanes || size % 2) return false;
    uint32_t states[MAX_LANES];
    std::memcpy(states, data, 4 * lanes);
    for (size_t lane = 0; lane < lanes; ++lane)
        if (states[lane] < RANS_LOW || states[lane] >> 31) return false;
    const uint8_t* words = data + 4 * lanes;
    const size_t num_words = (size - 4 * lanes) / 2;
    size_t at = 0, done = 0;
#if defined(NUQ_ISA_AVX2) || defined(NUQ_ISA_AVX512)
    if (lanes == 32)
        done =
            decode_vectors<Code, WIDE, CONTEXTS>(model, words, num_words, at, codes, contexts, count / 32 * 32, states);
#endif
    decode_scalar<Code, WIDE, CONTEXTS>(model, words, num_words, at, codes, contexts, done, count, states);
    // The encoder began where the decoder ends: a checksum of 31 bits a lane, for nothing.
    return at == num_words && std::all_of(states, states + lanes, [](uint32_t x) { return x == RANS_LOW; });
}

template <typename Code, bool WIDE>
bool decode(const RansModel& model, const uint8_t* data, size_t size, void* codes, const uint8_t* contexts,
            size_t count) {
    return contexts ? decode<Code, WIDE, true>(model, data, size, static_cast<Code*>(codes), contexts, count)
                    : decode<Code, WIDE, false>(model, data, size, static_cast<Code*>(codes), contexts, count);
}

template <typename Code>
size_t encode(const RansModel& model, const void* codes, const uint8_t* contexts, size_t count, uint8_t* end) {
    return contexts ? encode<Code, true>(model, static_cast<const Code*>(codes), contexts, count, end)
                    : encode<Code, false>(model, static_cast<const Code*>(codes), contexts, count, end);
}
}  // namespace

size_t rans_encode(const RansModel& model, const void* codes, const uint8_t* contexts, size_t count, uint8_t* end) {
    return model.wide_codes ? encode<uint16_t>(model, codes, contexts, count, end)
                            : encode<uint8_t>(model, codes, contexts, count, end);
}

bool rans_decode(const RansModel& model, const uint8_t* data, size_t size, void* codes, const uint8_t* contexts,
                 size_t count) {
    if (model.wide_codes) return decode<uint16_t, true>(model, data, size, codes, contexts, count);
    return model.wide_entries ? decode<uint8_t, true>(model, data, size, codes, contexts, count)
                              : decode<uint8_t, false>(model, data, size, codes, contexts, count);
}
}  // namespace NUQ_ISA
}  // namespace nuq
