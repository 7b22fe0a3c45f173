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
    float step;

    template <bool ALIGNED>
    F of(U codes, uint32_t c) const {
        F value = levels[codes];
        if (DITHER) {
            const F v = to_float(hash.at<ALIGNED>(c) >> (32 - fraction_bits)) * (1.0f / float(1 << fraction_bits));
            value = value - (v - 0.5f) * step;
        }
        value = value * scale;
        if (!ends) return value;
        return where_equal(codes, 0, splat(-top), where_equal(codes, outermost, splat(top), value));
    }
};

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
                                std::min(24, 30 - bits), float(2.0 / (job.num_levels - 1))};
    for (int64_t chunk = first; chunk < last; chunk += CHUNK) {
        const int64_t count = std::min(CHUNK, last - chunk);
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
    if (job.packing > 0 && job.packing < 16 && job.num_levels >= 1 << job.packing) return false;
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
