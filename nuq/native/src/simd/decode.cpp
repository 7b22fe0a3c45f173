// Values of packed codes: step 8 of the specification.
#include "packing.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
template <bool DITHER, int SIZE>
struct Values {
    Hash hash;
    Table<SIZE> levels;
    float scale, top;
    uint32_t outermost;  // the code that decodes to top, as 0 does to -top; beyond all codes where the ends are levels
    bool ends;
    int fraction_bits;
    float step, factor;

    template <bool ALIGNED>
    F of(U codes, uint32_t c) const {
        F value = levels[codes];
        if (DITHER) {
            const F v = to_float(hash.at<ALIGNED>(c) >> (32 - fraction_bits)) * (1.0f / float(1 << fraction_bits));
            value = value - (v - 0.5f) * step;
        }
        value = value * scale;
        if (ends) value = where_equal(codes, 0, splat(-top), where_equal(codes, outermost, splat(top), value));
        return value * factor;
    }
};

// W codes of at most four bits that begin a byte, out of 4 bytes from there on and, of 16 codes, 4 more after the first
// eight.
#if defined(NUQ_ISA_AVX512) || defined(NUQ_ISA_AVX2)
inline U unpacked(const uint8_t* from, int bits, U shifts, uint32_t mask) {
#if defined(NUQ_ISA_AVX512)
    const __m512i low = _mm512_set1_epi32(load<int32_t>(from));
    const U words = (U)_mm512_mask_set1_epi32(low, 0xFF00, load<int32_t>(from + bits));
#else
    (void)bits;
    const U words = splat(load<uint32_t>(from));
#endif
    return words >> shifts & mask;
}

// From coordinate c on, which begins a byte, W at a time without a buffer; how many of ``count`` were done.
template <bool ACCUMULATE, class Values>
inline int64_t write_direct(const Decode& job, const Values& values, int64_t c, int64_t count) {
    U shifts;
    for (int lane = 0; lane < W; ++lane) shifts[lane] = uint32_t(lane % 8 * job.packing);
    const uint32_t mask = (1u << job.packing) - 1;
    const uint8_t* from = job.packed + byte_of(c, job.packing);
    // bytes that a read may begin at
    const int64_t safe = byte_of(job.size, job.packing) - byte_of(c, job.packing) - 8;
    float* total = job.total + c;
    int64_t i = 0;
    for (int64_t byte = 0; i + W <= count && byte <= safe; i += W, byte += W / 8 * job.packing) {
        const F value = values.template of<true>(unpacked(from + byte, job.packing, shifts, mask), uint32_t(c + i));
        if (ACCUMULATE) prefetch(total + i + AHEAD);
        store(total + i, ACCUMULATE ? load<F>(total + i) + value : value);
    }
    return i;
}
#endif

template <bool ACCUMULATE, bool ALIGNED, class Values, class Code>
inline void write_run(const Values& values, const Code* codes, int64_t count, uint32_t c, float* total) {
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        const F value = values.template of<ALIGNED>(load_codes(codes + i), c + uint32_t(i));
        if (ACCUMULATE) prefetch(total + i + AHEAD);
        store(total + i, ACCUMULATE ? load<F>(total + i) + value : value);
    }
    if (i < count) {
        const F value = values.template of<ALIGNED>(load_codes(codes + i), c + uint32_t(i));
        store_first(total + i, ACCUMULATE ? load_first(total + i, count - i) + value : value, count - i);
    }
}

template <bool DITHER, int SIZE, class Code>
void decode_as(const Decode& job, int64_t first, int64_t last) {
    alignas(64) Code codes[CHUNK + 64] = {};
    alignas(64) float levels[MOST_LEVELS] = {};
    std::copy(job.levels, job.levels + job.num_levels, levels);
    int bits = 1;
    while (1 << bits < job.num_levels) ++bits;
    Values<DITHER, SIZE> values{{job.k0, job.k1}, Table<SIZE>(levels), 0, 0, uint32_t(job.num_levels - 1), job.tops,
                                std::min(24, 30 - bits), float(2.0 / (job.num_levels - 1)), job.factor};
    for (int64_t chunk = first, count; chunk < last; chunk += count) {
        count = std::min(CHUNK, last - chunk);
#if defined(NUQ_ISA_AVX512) || defined(NUQ_ISA_AVX2)
        // buckets of whole words
        if (job.packing > 0 && job.packing <= 4 && (job.bucket % 64 == 0 || job.bucket == job.size) &&
            chunk % 64 == 0) {
            const int64_t bucket = chunk / job.bucket, in_bucket = std::min(last, (bucket + 1) * job.bucket) - chunk;
            values.scale = job.scales[job.tops ? 2 * bucket : bucket];
            values.top = job.tops ? job.scales[2 * bucket + 1] : 0.0f;
            count = job.accumulate ? write_direct<true>(job, values, chunk, in_bucket)
                                   : write_direct<false>(job, values, chunk, in_bucket);
            if (count) continue;
            count = std::min(CHUNK, last - chunk);
        }
#endif
        unpack(job.packed + byte_of(chunk, job.packing), count, job.packing, codes);
        for (int64_t at = 0; at < count;) {
            const int64_t c = chunk + at, bucket = c / job.bucket;
            const int64_t part = std::min(count - at, (bucket + 1) * job.bucket - c);
            values.scale = job.scales[job.tops ? 2 * bucket : bucket];
            values.top = job.tops ? job.scales[2 * bucket + 1] : 0.0f;
            float* total = job.total + c;
            const Code* from = codes + at;
            if (c % W == 0) {
                if (job.accumulate) write_run<true, true>(values, from, part, uint32_t(c), total);
                else write_run<false, true>(values, from, part, uint32_t(c), total);
            } else {
                if (job.accumulate) write_run<true, false>(values, from, part, uint32_t(c), total);
                else write_run<false, false>(values, from, part, uint32_t(c), total);
            }
            at += part;
        }
    }
}

template <bool DITHER, class Code>
void decode_with(const Decode& job, int64_t first, int64_t last) {
    if (job.num_levels <= SMALL_TABLE)
        decode_as<DITHER, SMALL_TABLE, Code>(job, first, last);
    else if (job.num_levels <= LARGE_TABLE)
        decode_as<DITHER, LARGE_TABLE, Code>(job, first, last);
    else
        decode_as<DITHER, 0, Code>(job, first, last);
}

template <class Code>
bool any_beyond(const Decode& job, int64_t first, int64_t last) {
    Code codes[CHUNK + 64] = {};
    for (int64_t chunk = first; chunk < last; chunk += CHUNK) {
        const int64_t count = std::min(CHUNK, last - chunk);
        unpack(job.packed + byte_of(chunk, job.packing), count, job.packing, codes);
        Code most = 0;
        for (int64_t i = 0; i < count; ++i) most = std::max(most, codes[i]);
        if (most >= job.num_levels) return true;
    }
    return false;
}
}  // namespace

bool beyond(const Decode& job, int64_t first, int64_t last) {
    if (job.packing == TERNARY) {
        const uint8_t* bytes = job.packed + byte_of(first, TERNARY);
        const int64_t count = (last - first + 4) / 5;
        uint8_t most = 0;
        for (int64_t i = 0; i < count; ++i) most = std::max(most, bytes[i]);
        if (most > 242) return true;
        if (job.num_levels >= 3) return false;
    }
    return job.packing <= 8 ? any_beyond<uint8_t>(job, first, last) : any_beyond<uint16_t>(job, first, last);
}

void decode(const Decode& job, int64_t first, int64_t last) {
    if (job.packing <= 8) {
        if (job.dither) decode_with<true, uint8_t>(job, first, last);
        else decode_with<false, uint8_t>(job, first, last);
    } else {
        if (job.dither) decode_with<true, uint16_t>(job, first, last);
        else decode_with<false, uint16_t>(job, first, last);
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
