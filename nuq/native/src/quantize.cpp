// The entry points of encode and decode: how a vector is cut among the threads.  The cuts change no bit.
#include "quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "level_tables.h"

namespace {
using namespace nuq;

// coordinates that a thread takes at a time, at most (but for groups of large buckets)
constexpr int64_t PORTION = 1 << 16;
constexpr int64_t L1_SHARE = 1 << 13;  // coordinates that are measured before they are encoded, at least
constexpr int64_t PART = 64 * BLOCK;  // of a large bucket

// Threads beyond one a portion would wait longer than they work.
int threads_for(int64_t size, int threads) {
    return int(std::max<int64_t>(1, std::min<int64_t>(threads, size / (PORTION / 4))));
}

// Several portions for every thread, so that none waits long for another.
int64_t portion_of(int64_t size, int threads) { return std::min(PORTION, std::max(PORTION / 8, size / (4 * threads))); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class Work>
void in_parallel(int64_t count, int threads, const Work& work) {
    if (threads == 1 || count <= 1) {
        for (int64_t i = 0; i < count; ++i) work(i);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) work(i);
}

// All coordinates in portions that are multiples of CHUNK.
template <class Work>
void in_portions(int64_t size, int threads, const Work& work) {
    const int64_t portion = portion_of(size, threads) / CHUNK * CHUNK;
    in_parallel(ceil_div(size, portion), threads,
                [&](int64_t i) { work(i * portion, std::min(size, (i + 1) * portion)); });
}

void scale_large_bucket(const Encode& job, int64_t bucket, int threads) {
    const int64_t count = std::min(job.bucket, job.size - bucket * job.bucket);
    const int64_t blocks = ceil_div(count, BLOCK), parts = ceil_div(count, PART);
    int64_t room = 1;
    while (room < blocks) room *= 2;
    std::vector<double> sums(static_cast<size_t>(room));
    std::vector<Maxima> maxima(static_cast<size_t>(parts));
    in_parallel(parts, threads, [&](int64_t part) {
        const int64_t first = part * (PART / BLOCK);
        NUQ_CALL(measure, job, bucket, first, std::min(blocks, first + PART / BLOCK), sums.data(),
                 maxima[size_t(part)]);
    });
    NUQ_CALL(join, job, bucket, sums.data(), maxima.data(), parts);
}

// The fewest whole buckets that end where a byte ends.
int64_t buckets_to_a_byte(const Encode& job) {
    if (!job.packed) return 1;
    return job.packing == TERNARY ? 5 / std::gcd<int64_t>(job.bucket, 5)
                                  : 8 / std::gcd<int64_t>(job.bucket * job.packing, 8);
}

// The first scale that is not finite, or -1.
int64_t first_not_finite(const float* scales, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        if (!std::isfinite(scales[i])) return i;
    return -1;
}

// With what comes before and after it: a sum, which is job.vector, and the decoded codes.
int64_t run(const Encode& job, int threads, const Sum* sum = nullptr, const Decode* after = nullptr) {
    if (!job.size) return -1;
    const int64_t buckets = ceil_div(job.size, job.bucket);
    int64_t group = buckets_to_a_byte(job);
    // A thread that measures a bucket encodes it too, out of its own cache: unless buckets are large or too few to go
    // round.
    const bool fused =
        group * job.bucket <= SMALL_BUCKET && (threads == 1 || group * job.bucket * 2 * threads <= job.size);
    group *= std::max<int64_t>(1, L1_SHARE / (group * job.bucket));
    if (job.bucket > SMALL_BUCKET) {
        if (sum)
            in_portions(job.size, threads, [&](int64_t first, int64_t last) { NUQ_CALL(add_kept, *sum, first, last); });
        for (int64_t bucket = 0; bucket < buckets; ++bucket) scale_large_bucket(job, bucket, threads);
    } else {
        const int64_t unit = group * std::max<int64_t>(1, portion_of(job.size, threads) / (group * job.bucket));
        in_parallel(ceil_div(buckets, unit), threads, [&](int64_t i) {
            const int64_t end = std::min(buckets, (i + 1) * unit);
            for (int64_t first = i * unit; first < end; first += group) {
                const int64_t last = std::min(end, first + group);
                const int64_t from = first * job.bucket, to = std::min(job.size, last * job.bucket);
                if (sum) NUQ_CALL(add_kept, *sum, from, to);
                NUQ_CALL(scale_buckets, job, first, last);
                if (fused && job.packed) NUQ_CALL(encode, job, from, to);
                // it may load up to 3 bytes of the next unit, which another thread writes, and drops their bits
                if (fused && after) NUQ_CALL(decode, *after, from, to);
            }
        });
    }
    const int64_t bad = first_not_finite(job.scales, job.norm == QUANTILE ? 2 * buckets : buckets);
    if (bad < 0 && !fused && job.packed)
        in_portions(job.size, threads, [&](int64_t first, int64_t last) {
            NUQ_CALL(encode, job, first, last);
            if (after) NUQ_CALL(decode, *after, first, last);
        });
    return bad;
}

// False where a code is beyond the levels: then the total is as it was.
bool decoded(const Decode& job, int threads) {
    const bool all_legal = job.packing > 0 && job.packing < 16 && job.num_levels >= 1 << job.packing;
    std::atomic<bool> damaged{false};
    if (!all_legal)
        in_portions(job.size, threads, [&](int64_t first, int64_t last) {
            if (NUQ_CALL(beyond, job, first, last)) damaged = true;
        });
    if (damaged) return false;
    in_portions(job.size, threads, [&](int64_t first, int64_t last) { NUQ_CALL(decode, job, first, last); });
    return true;
}

// Where the numbers of a body lie: head, levels (num_levels 0: none travel), scales, codes.
struct Bodies {
    int64_t bucket;
    bool two_scales;
    int num_levels;
    int64_t head_bytes;
    int64_t scales_at() const { return head_bytes + 4 * num_levels; }
    int64_t num_scales(int64_t size) const { return ceil_div(size, bucket) * (two_scales ? 2 : 1); }
    int64_t codes_at(int64_t size) const { return scales_at() + 4 * num_scales(size); }
};

int64_t packed_bytes(int64_t count, int packing) {
    return packing == TERNARY ? ceil_div(count, 5) : ceil_div(count * packing, 8);
}

// nuq.kernels.spec.lanes
int lanes_of(int64_t bucket, int64_t size) {
    int lanes = 1;
    while (lanes < LANES && lanes * 64 <= std::min(bucket, size)) lanes *= 2;
    return lanes;
}
}  // namespace

// The place of the first scale that is not finite, or -1.  levels null: equally spaced.  packed null: scales alone.
NUQ_EXPORT int64_t nuq_encode(const void* vector, int dtype, int64_t size, int64_t bucket, int norm, int lanes,
                              float multiple, float* scales, uint8_t* packed, int packing, const float* levels,
                              int num_levels, int stochastic, uint32_t k0, uint32_t k1, uint32_t own,
                              uint32_t workers, int threads) {
    const auto tables = levels && packed && size ? std::make_unique<LevelTables>(levels, num_levels) : nullptr;
    const Encode job{vector,
                     dtype,
                     size,
                     std::max<int64_t>(1, std::min(bucket, size)),
                     norm,
                     lanes,
                     multiple,
                     scales,
                     packed,
                     packing,
                     tables.get(),
                     num_levels,
                     stochastic != 0,
                     k0,
                     k1,
                     own,
                     workers};
    return run(job, threads_for(size, threads));
}

// 0, or 1 where a code is beyond the levels: then the total is as it was.
NUQ_EXPORT int nuq_decode(const uint8_t* packed, int packing, const float* scales, int tops, const float* levels,
                          int num_levels, float* total, int64_t size, int64_t bucket, int accumulate, int dither,
                          uint32_t k0, uint32_t k1, int threads) {
    return decoded({packed,
                    packing,
                    scales,
                    tops != 0,
                    levels,
                    num_levels,
                    total,
                    size,
                    std::max<int64_t>(1, std::min(bucket, size)),
                    accumulate != 0,
                    dither != 0,
                    k0,
                    k1,
                    1.0f},
                   threads_for(size, threads))
               ? 0
               : 1;
}

// Pieces of a vector into the bodies of a frame, which all begin with the same head (nuq/compressors/body.py): the
// first piece with a scale that is not finite, or -1.  Every body begins at a multiple of 4 bytes.  decoded: null, or
// room for what the bodies hold, float32 as long as the vector; kept: null, or what is added to it, and wanted: room for
// that sum.
NUQ_EXPORT int64_t nuq_encode_pieces(const uint8_t* vector, int dtype, int64_t count, const int64_t* starts,
                                     const int64_t* sizes, const int64_t* bodies, const uint32_t* words,
                                     uint32_t own, uint32_t workers, int64_t bucket, int norm,
                                     float multiple, int packing, const float* levels, int num_levels,
                                     int levels_travel, const uint8_t* head, int64_t head_bytes, uint8_t* frame,
                                     const float* kept, float* wanted, float* decoded, int threads) {
    const auto tables = levels_travel ? std::make_unique<LevelTables>(levels, num_levels) : nullptr;
    const Bodies layout{bucket, norm == QUANTILE, levels_travel ? num_levels : 0, head_bytes};
    for (int64_t i = 0; i < count; ++i) {
        uint8_t* const body = frame + bodies[i];
        std::memcpy(body, head, size_t(head_bytes));
        if (levels_travel) std::memcpy(body + head_bytes, levels, sizeof(float) * size_t(num_levels));
        const int64_t start = starts[i], size = sizes[i], in_bucket = std::max<int64_t>(1, std::min(bucket, size));
        const uint8_t* const x = vector + start * (dtype == FLOAT32 ? 4 : 2);
        float* const scales = reinterpret_cast<float*>(body + layout.scales_at());
        uint8_t* const codes = body + layout.codes_at(size);
        const Sum sum = kept ? Sum{x, dtype, kept + start, wanted + start} : Sum{};
        const Decode after{codes,
                           packing,
                           scales,
                           norm == QUANTILE,
                           levels,
                           num_levels,
                           decoded ? decoded + start : nullptr,
                           size,
                           in_bucket,
                           false,
                           false,
                           0,
                           0,
                           1.0f};
        const Encode job{kept ? sum.wanted : static_cast<const void*>(x),
                         kept ? FLOAT32 : dtype,
                         size,
                         in_bucket,
                         norm,
                         lanes_of(bucket, size),
                         multiple,
                         scales,
                         codes,
                         packing,
                         tables.get(),
                         num_levels,
                         true,
                         words[2 * i],
                         words[2 * i + 1],
                         own,
                         workers};
        if (run(job, threads_for(size, threads), kept ? &sum : nullptr, decoded ? &after : nullptr) >= 0) return i;
    }
    return -1;
}

// Adds pieces of a vector, from bodies that begin with this head, times a factor from -1 to 1, to the total: the first
// one that is left out, or -1.
// It is one of another head or length, or with numbers that want a closer look: not finite, beyond their range, or so
// large that a sum might overflow.
NUQ_EXPORT int64_t nuq_add_pieces(const uint8_t* frame, int64_t count, const int64_t* starts, const int64_t* sizes,
                                  const int64_t* bodies, const int64_t* ends, int64_t bucket, int tops, int packing,
                                  const float* levels, int num_levels, int levels_travel, const uint8_t* head,
                                  int64_t head_bytes, float factor, float* total, int threads) {
    const Bodies layout{bucket, tops != 0, levels_travel ? num_levels : 0, head_bytes};
    for (int64_t i = 0; i < count; ++i) {
        const uint8_t* const body = frame + bodies[i];
        const int64_t size = sizes[i], codes_at = layout.codes_at(size);
        if (ends[i] - bodies[i] != codes_at + packed_bytes(size, packing)) return i;
        if (std::memcmp(body, head, size_t(head_bytes)) != 0) return i;
        const float* const own = levels_travel ? reinterpret_cast<const float*>(body + head_bytes) : levels;
        for (int j = 0; levels_travel && j < num_levels; ++j)
            if (!(std::fabs(own[j]) <= 1.0f)) return i;
        const float* const scales = reinterpret_cast<const float*>(body + layout.scales_at());
        for (int64_t j = 0; j < layout.num_scales(size); ++j)
            if (!(std::fabs(scales[j]) < std::numeric_limits<float>::max())) return i;
        const bool good = decoded({body + codes_at,
                                   packing,
                                   scales,
                                   tops != 0,
                                   own,
                                   num_levels,
                                   total + starts[i],
                                   size,
                                   std::max<int64_t>(1, std::min(bucket, size)),
                                   true,
                                   false,
                                   0,
                                   0,
                                   factor},
                                  threads_for(size, threads));
        if (!good) return i;
    }
    return -1;
}
