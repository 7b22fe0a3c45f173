// Codes of coordinates: steps 3 to 7 of the specification, with any noise.
#pragma once
#include "../level_tables.h"
#include "packing.h"
#include "rounding.h"
#include "widen.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
template <class Rounding, bool ALIGNED, class Code>
inline void round_run(const Rounding& rounding, const float* x, int64_t count, uint32_t c, Code* codes) {
    int64_t i = 0;
    for (; i + W <= count; i += W)
        store_codes(codes + i, rounding.template codes<ALIGNED>(load<F>(x + i), c + uint32_t(i)));
    if (i < count)
        store_codes(codes + i, rounding.template codes<ALIGNED>(load_first(x + i, count - i), c + uint32_t(i)));
}

// count, a multiple of 4 W, from registers to packed bytes.
template <int BITS, class Rounding>
inline void round_and_put(const Rounding& rounding, const float* x, int64_t count, uint32_t c, int bits, uint8_t* to,
                          int64_t ahead) {
    for (int64_t i = 0; i < count; i += 4 * W) {
        U codes[4];
        for (int v = 0; v < 4; ++v) {
            const float* at = x + i + v * W;
            if (ahead) prefetch(at + ahead);
            codes[v] = rounding.template codes<true>(load<F>(at), c + uint32_t(i) + uint32_t(v * W));
        }
        put<BITS>(narrowed(codes[0], codes[1], codes[2], codes[3]), bits, to + i / 8 * bits);
    }
}

// What a call's range is cut into: coordinates c .. c + count of one bucket.
struct Run {
    const float* x;
    int64_t count, c;
    // Coordinates of the run to come, in memory, that are worth fetching now; 0: none.
    int64_t ahead;
};

// The first ``direct`` coordinates (a multiple of 4 W; only where the run begins at a multiple of 64) straight into
// packed bytes, the others as codes, with room for W more.
template <class Code, class Rounding>
void round_all(const Encode& job, const Rounding& rounding, const Run& run, int64_t direct, Code* codes) {
    const uint32_t c = uint32_t(run.c);
    if (direct) {
        uint8_t* to = job.packed + byte_of(run.c, job.packing);
        const int bits = job.packing;
        if (bits == 4) round_and_put<4>(rounding, run.x, direct, c, bits, to, run.ahead);
        else if (bits == 8) round_and_put<8>(rounding, run.x, direct, c, bits, to, run.ahead);
        else if (bits == 2) round_and_put<2>(rounding, run.x, direct, c, bits, to, run.ahead);
        else if (bits == 1) round_and_put<1>(rounding, run.x, direct, c, bits, to, run.ahead);
        else round_and_put<0>(rounding, run.x, direct, c, bits, to, run.ahead);
    }
    if (c % W == 0)
        round_run<Rounding, true>(rounding, run.x + direct, run.count - direct, c + uint32_t(direct), codes);
    else
        round_run<Rounding, false>(rounding, run.x, run.count, c, codes);
}

// Chunks of a range, and the runs of each; ``round(bucket, fresh, run, direct, codes)``.
template <class Code, class Round>
void in_runs(const Encode& job, int64_t first, int64_t last, const Round& round) {
    alignas(64) float room[CHUNK];
    alignas(64) Code codes[CHUNK + 64];
    // Where all buckets begin at multiples of 64, and so at bytes, codes need not wait for each other.
    const bool direct = sizeof(Code) == 1 && job.packing != TERNARY &&
                        (job.bucket % 64 == 0 || job.bucket == job.size) && first % 64 == 0;
    int64_t index = first / job.bucket, end = std::min((index + 1) * job.bucket, last);
    Bucket bucket(job, index);
    bool fresh = true;
    for (int64_t chunk = first, count; chunk < last; chunk += count) {
        if (direct && chunk == end) end += job.bucket, bucket = Bucket(job, ++index), fresh = true;
        count = std::min(CHUNK, (direct ? std::min(end, last) : last) - chunk);
        const float* x = widened(job.vector, job.dtype, chunk, count, room);
        if (direct) {
            // put may write 7 bytes more than its own, which must be this range's to write
            const int64_t straight = std::max<int64_t>(0, std::min(count, last - chunk - 64) / (4 * W) * (4 * W));
            const int64_t ahead = chunk + count + (last - first) <= job.size ? last - first : 0;
            if (ahead && job.dtype != FLOAT32)
                for (int64_t i = 0; i < count; i += 32)
                    prefetch(static_cast<const uint16_t*>(job.vector) + chunk + ahead + i);
            round(bucket, fresh, Run{x, count, chunk, job.dtype == FLOAT32 ? ahead : 0}, straight, codes);
            fresh = false;
            if (straight < count)
                pack(codes, count - straight, job.packing, job.packed + byte_of(chunk + straight, job.packing));
            continue;
        }
        for (int64_t at = 0; at < count;) {
            if (chunk + at == end) {
                end = std::min(end + job.bucket, last);
                bucket = Bucket(job, ++index);
                fresh = true;
            }
            const int64_t part = std::min(count, end - chunk) - at;
            round(bucket, fresh, Run{x + at, part, chunk + at, 0}, 0, codes + at);
            fresh = false;
            at += part;
        }
        pack(codes, count, job.packing, job.packed + byte_of(chunk, job.packing));
    }
}

// The levels of a job, or equally spaced ones, by a search that suits their number.  noise: Hash, another one of
// vector.h, or Thresholds.
template <class Code, class Search, class Noise>
void encode_levels(const Noise& noise, const Encode& job, int64_t first, int64_t last) {
    Intervals intervals(*job.levels);
    in_runs<Code>(job, first, last, [&](const Bucket& bucket, bool fresh, const Run& run, int64_t direct, Code* codes) {
        if (fresh && job.norm == QUANTILE) intervals.set_ends(bucket.t);
        const Search search(*job.levels, intervals);
        round_all(job, Arbitrary<Search, Noise>{noise, bucket, search}, run, direct, codes);
    });
}

template <class Code, class Noise>
void encode_uniform(const Noise& noise, const Encode& job, int64_t first, int64_t last) {
    const int bits = std::min(24, 30 - code_bits(job.num_levels));
    const int32_t half = (job.num_levels - 1) << (bits - 1);
    in_runs<Code>(job, first, last, [&](const Bucket& bucket, bool, const Run& run, int64_t direct, Code* codes) {
        round_all(job, Uniform<Noise>{noise, bits, half, bucket}, run, direct, codes);
    });
}

template <class Code, class Noise>
void encode_as(const Noise& noise, const Encode& job, int64_t first, int64_t last) {
    if constexpr (!std::is_same_v<Noise, Thresholds>)
        if (!job.levels) return encode_uniform<Code>(noise, job, first, last);
#if defined(NUQ_ISA_AVX512)
    if (job.num_levels <= 5) return encode_levels<Code, InRegisters<16, 2>>(noise, job, first, last);
    if (job.num_levels <= 9) return encode_levels<Code, InRegisters<16, 3>>(noise, job, first, last);
    if (job.num_levels <= 16) return encode_levels<Code, InRegisters<16, 4>>(noise, job, first, last);
    if (job.num_levels <= 32) return encode_levels<Code, InRegisters<32, 5>>(noise, job, first, last);
#elif defined(NUQ_ISA_AVX2)
    if (job.num_levels <= 5) return encode_levels<Code, InRegisters<8, 2>>(noise, job, first, last);
    if (job.num_levels <= 8) return encode_levels<Code, InRegisters<8, 3>>(noise, job, first, last);
    if (job.num_levels <= 16) return encode_levels<Code, InRegisters<16, 4>>(noise, job, first, last);
#else
    if (job.num_levels <= 24) return encode_levels<Code, Counted>(noise, job, first, last);
#endif
    encode_levels<Code, InMemory>(noise, job, first, last);
}

template <class Noise>
void encode_with(const Noise& noise, const Encode& job, int64_t first, int64_t last) {
    if (job.packing <= 8) encode_as<uint8_t>(noise, job, first, last);
    else encode_as<uint16_t>(noise, job, first, last);
}
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
