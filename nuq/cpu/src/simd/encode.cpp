// Codes of coordinates: steps 3 to 7 of the specification.
#include <cmath>
#include <limits>

#include "packing.h"
#include "widen.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
// Step 3 for one bucket.
struct Bucket {
    float inverse, t;
    Bucket(const Encode& job, int64_t bucket) {
        const bool quantile = job.norm == QUANTILE;
        const float scale = job.scales[quantile ? 2 * bucket : bucket];
        inverse = scale > 0 ? 1.0f / scale : 0.0f;
        t = quantile && scale > 0 ? job.scales[2 * bucket + 1] * inverse : 1.0f;
    }
    F normalized(F x) const { return at_most(at_least(x * inverse, splat(-t)), splat(t)); }
};

int code_bits(int num_levels) {
    int bits = 1;
    while (1 << bits < num_levels) ++bits;
    return bits;
}

// Step 5.
struct Uniform {
    Hash hash;
    int fraction_bits;
    int32_t half;
    Bucket bucket;

    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const I noise = (I)(hash.at<ALIGNED>(c) >> (32 - fraction_bits));
        return (U)((truncate(bucket.normalized(x) * float(half)) + half + noise) >> fraction_bits);
    }
};

// Step 4: the tables of one call, whose ends a bucket under quantile changes.
struct Levels {
    // search[i]: the i-th interior level; behind them something that is not <= any number.  A binary search of ``depth`` steps.
    alignas(64) float search[MOST_LEVELS + 1], lower[MOST_LEVELS], inverse_width[MOST_LEVELS];
    int last, depth;  // the last interval

    explicit Levels(const Encode& job) {
        last = job.num_levels - 2;
        for (depth = 0; (1 << depth) <= last; ++depth) {}
        std::fill(search, search + MOST_LEVELS + 1, std::numeric_limits<float>::quiet_NaN());
        std::copy(job.levels + 1, job.levels + 1 + last, search + 1);
        std::fill(lower, lower + MOST_LEVELS, 0.0f);
        std::fill(inverse_width, inverse_width + MOST_LEVELS, 0.0f);
        for (int k = 0; k <= last; ++k) {
            lower[k] = job.levels[k];
            inverse_width[k] = 1.0f / (job.levels[k + 1] - job.levels[k]);
        }
        first_upper = job.levels[1];
    }

    void set_ends(float t) {
        const float upper = last == 0 ? t : first_upper;
        lower[0] = -t;
        inverse_width[last] = 1.0f / (t - lower[last]);
        inverse_width[0] = 1.0f / (upper - lower[0]);
    }

  private:
    float first_upper;
};

template <int SIZE, bool STOCHASTIC>
struct Arbitrary {
    Hash hash;
    Bucket bucket;
    int depth;
    Table<SIZE> lower, inverse_width;
    const float* search;

    Arbitrary(const Encode& job, const Levels& levels, const Bucket& bucket)
        : hash{job.k0, job.k1}, bucket(bucket), depth(levels.depth), lower(levels.lower), inverse_width(levels.inverse_width),
          search(levels.search) {}

    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const F r = bucket.normalized(x);
        U k{};
        for (int step = 1 << depth >> 1; step; step >>= 1) k = add_where_not_above(k, Table<SIZE>(search + step)[k], r, uint32_t(step));
        if (!STOCHASTIC) return k;
        const F q = (r - lower[k]) * inverse_width[k];
        return add_where_below(k, to_float(hash.at<ALIGNED>(c) >> 8) * 0x1p-24f, q);
    }
};

template <bool ALIGNED, class Rounding, class Code>
inline void round_run(const Rounding& rounding, const float* x, int64_t count, uint32_t c, Code* codes) {
    int64_t i = 0;
    for (; i + W <= count; i += W) store_codes(codes + i, rounding.template codes<ALIGNED>(load<F>(x + i), c + uint32_t(i)));
    if (i < count) store_codes(codes + i, rounding.template codes<ALIGNED>(load_first(x + i, count - i), c + uint32_t(i)));
}

// Codes of count coordinates of one bucket, the first being c, into room for W more.
template <class Rounding, class Code>
void round_all(const Rounding& rounding, const float* x, int64_t count, int64_t c, Code* codes) {
    if (c % W == 0)
        round_run<true>(rounding, x, count, uint32_t(c), codes);
    else
        round_run<false>(rounding, x, count, uint32_t(c), codes);
}

template <int SIZE, class Code>
void round_levels(const Encode& job, const Levels& levels, const Bucket& bucket, const float* x, int64_t count, int64_t c, Code* codes) {
    if (job.stochastic)
        round_all(Arbitrary<SIZE, true>(job, levels, bucket), x, count, c, codes);
    else
        round_all(Arbitrary<SIZE, false>(job, levels, bucket), x, count, c, codes);
}

template <class Code, class RoundRun>
void in_chunks(const Encode& job, int64_t first, int64_t last, const RoundRun& round_part) {
    alignas(64) float room[CHUNK];
    alignas(64) Code codes[CHUNK + 64];
    int64_t index = first / job.bucket, end = std::min((index + 1) * job.bucket, last);
    Bucket bucket(job, index);
    bool fresh = true;
    for (int64_t chunk = first; chunk < last; chunk += CHUNK) {
        const int64_t count = std::min(CHUNK, last - chunk);
        const float* x = widened(job, chunk, count, room);
        for (int64_t at = 0; at < count;) {
            if (chunk + at == end) {
                ++index;
                end = std::min(end + job.bucket, last);
                bucket = Bucket(job, index);
                fresh = true;
            }
            const int64_t part = std::min(count, end - chunk) - at;
            round_part(bucket, fresh, x + at, part, chunk + at, codes + at);
            fresh = false;
            at += part;
        }
        pack(codes, count, job.packing, job.packed + byte_of(chunk, job.packing));
    }
}

template <class Code>
void encode_as(const Encode& job, int64_t first, int64_t last) {
    if (!job.levels) {
        const int bits = std::min(24, 30 - code_bits(job.num_levels));
        const int32_t half = (job.num_levels - 1) << (bits - 1);
        in_chunks<Code>(job, first, last, [&](const Bucket& bucket, bool, const float* x, int64_t count, int64_t c, Code* codes) {
            round_all(Uniform{{job.k0, job.k1}, bits, half, bucket}, x, count, c, codes);
        });
        return;
    }
    Levels levels(job);
    in_chunks<Code>(job, first, last, [&](const Bucket& bucket, bool fresh, const float* x, int64_t count, int64_t c, Code* codes) {
        if (fresh && job.norm == QUANTILE) levels.set_ends(bucket.t);
        if (job.num_levels <= SMALL_TABLE)
            round_levels<SMALL_TABLE>(job, levels, bucket, x, count, c, codes);
        else if (job.num_levels <= LARGE_TABLE)
            round_levels<LARGE_TABLE>(job, levels, bucket, x, count, c, codes);
        else
            round_levels<0>(job, levels, bucket, x, count, c, codes);
    });
}
}  // namespace

void encode(const Encode& job, int64_t first, int64_t last) {
    if (job.packing <= 8)
        encode_as<uint8_t>(job, first, last);
    else
        encode_as<uint16_t>(job, first, last);
}
}  // namespace NUQ_ISA
}  // namespace nuq
