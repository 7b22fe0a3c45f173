// Scales of buckets: step 2 of the specification; and the sum that is encoded, where it is one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tree.h"
#include "widen.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr float SMALLEST = 0x1p-126f, QUANTILE_FACTOR = 64.0f;  // as in nuq/kernels/operators.py

inline D square_sum(const float* a, const float* b) {
    const D x = widened(a), y = widened(b);
#if defined(NUQ_ISA_AVX512)
    // The square of a float32 is exact in float64, so fusing it with the sum changes no bit.
    return (D)_mm512_fmadd_pd((__m512d)y, (__m512d)y, (__m512d)(x * x));
#else
    return x * x + y * y;
#endif
}

// The tree's first three halvings of one vector of the sums that they leave, which are STEP apart.
template <int STEP>
inline D eighth(const float* at) {
    const D s0 = square_sum(at, at + 4 * STEP), s1 = square_sum(at + STEP, at + 5 * STEP);
    const D s2 = square_sum(at + 2 * STEP, at + 6 * STEP), s3 = square_sum(at + 3 * STEP, at + 7 * STEP);
    return (s0 + s2) + (s1 + s3);
}

// The halvings of every STRIDE-th vector from i on, in an order that keeps few of them waiting.
template <int STEP, int STRIDE>
inline D branch(const float* x, int i) {
    if constexpr (STRIDE * (W / 2) == STEP)
        return eighth<STEP>(x + i * (W / 2));
    else
        return branch<STEP, 2 * STRIDE>(x, i) + branch<STEP, 2 * STRIDE>(x, i + STRIDE);
}

template <int SIZE>
double full_block(const float* x) {
    double sums[W / 2];
    store(sums, branch<SIZE / 8, 1>(x, 0));
    for (int h = W / 4; h > 0; h /= 2)
        for (int i = 0; i < h; ++i) sums[i] += sums[i + h];
    return sums[0];
}

double block_sum(const float* x, int64_t count) {
    if (count == BLOCK) return full_block<BLOCK>(x);
    if (count == 512) return full_block<512>(x);
    if (count == 256) return full_block<256>(x);
    if (count == 128) return full_block<128>(x);
    if (count == 64) return full_block<64>(x);
    double squares[BLOCK];
    const int64_t size = power_of_two(count);
    for (int64_t i = 0; i < count; ++i) squares[i] = double(x[i]) * double(x[i]);
    std::fill(squares + count, squares + size, 0.0);  // zeros change no sum, so the smallest tree will do
    return halved(squares, size);
}

// As bits, in whose order what is not a number comes above infinity.
void update_maxima(const float* x, int64_t count, Maxima& maxima) {
    I largest[LANES / W];
    for (int v = 0; v < LANES / W; ++v) largest[v] = load<I>(maxima.of + v * W);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int v = 0; v < LANES / W; ++v) largest[v] = larger(largest[v], load<I>(x + i + v * W) & 0x7FFFFFFF);
    for (int v = 0; v < LANES / W; ++v) store(maxima.of + v * W, largest[v]);
    for (; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, x + i, sizeof bits);
        maxima.of[i % LANES] = std::max(maxima.of[i % LANES], bits & 0x7FFFFFFF);
    }
}

float of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool needs_sum(const Encode& job) { return job.norm == L2 || job.norm == RMS; }
bool needs_maxima(const Encode& job) { return job.norm != L2; }

void finish(const Encode& job, int64_t bucket, double sum, const Maxima& maxima) {
    const int64_t count = std::min(job.bucket, job.size - bucket * job.bucket);
    uint32_t most = 0;  // in a loop that compilers turn into vectors, unlike std::max_element
    for (const uint32_t bits : maxima.of) most = std::max(most, bits);
    const float largest = of_bits(most);
    const auto cleaned = [](float scale) { return scale < SMALLEST ? 0.0f : scale; };
    if (job.norm == L2) {
        job.scales[bucket] = cleaned(float(std::sqrt(sum)));
    } else if (job.norm == LINF) {
        job.scales[bucket] = cleaned(largest);
    } else if (job.norm == RMS) {
        const float rms = float(std::sqrt(sum / double(count))) * job.multiple;
        job.scales[bucket] = cleaned(largest < rms || std::isnan(rms) ? rms : largest);
    } else {
        uint32_t lanes[LANES] = {};
        for (int place = 0; place < LANES; ++place)
            lanes[place % job.lanes] = std::max(lanes[place % job.lanes], maxima.of[place]);
        const float low = of_bits(*std::min_element(lanes, lanes + std::min<int64_t>(job.lanes, count)));
        const float scale = std::isnan(largest) ? largest : QUANTILE_FACTOR * (low < SMALLEST ? largest : low);
        job.scales[2 * bucket] = largest < SMALLEST ? 0.0f : scale;
        job.scales[2 * bucket + 1] = cleaned(largest);
    }
}
}  // namespace

void add_kept(const Sum& job, int64_t first, int64_t last) {
    alignas(64) float room[BLOCK];
    for (int64_t at = first, count; at < last; at += count) {
        count = std::min(BLOCK, last - at);
        const float* x = widened(job.vector, job.dtype, at, count, room);
        for (int64_t i = 0; i < count; ++i) job.wanted[at + i] = x[i] + job.kept[at + i];
    }
}

void measure(const Encode& job, int64_t bucket, int64_t first, int64_t last, double* sums, Maxima& maxima) {
    alignas(64) float room[BLOCK];
    const int64_t start = bucket * job.bucket, end = std::min(start + job.bucket, job.size);
    for (int64_t block = first; block < last; ++block) {
        const int64_t at = start + block * BLOCK, count = std::min(BLOCK, end - at);
        const float* x = widened(job.vector, job.dtype, at, count, room);
        if (job.bucket > SMALL_BUCKET && job.dtype == FLOAT32)  // a pass of its own over memory
            for (int64_t i = 0; i < count; i += 16) prefetch(x + i + AHEAD);
        if (needs_sum(job)) sums[block] = block_sum(x, count);
        if (needs_maxima(job)) update_maxima(x, count, maxima);
    }
}

void join(const Encode& job, int64_t bucket, double* sums, const Maxima* maxima, int64_t parts) {
    const int64_t count = std::min(job.bucket, job.size - bucket * job.bucket);
    const int64_t blocks = (count + BLOCK - 1) / BLOCK, size = power_of_two(blocks);
    double sum = 0.0;
    if (needs_sum(job)) {
        std::fill(sums + blocks, sums + size, 0.0);
        sum = halved(sums, size);
    }
    Maxima all{};
    for (int64_t part = 0; part < parts; ++part)
        for (int j = 0; j < LANES; ++j) all.of[j] = std::max(all.of[j], maxima[part].of[j]);
    finish(job, bucket, sum, all);
}

void scale_buckets(const Encode& job, int64_t first, int64_t last) {
    double sums[SMALL_BUCKET / BLOCK];
    for (int64_t bucket = first; bucket < last; ++bucket) {
        const int64_t count = std::min(job.bucket, job.size - bucket * job.bucket);
        Maxima maxima{};
        measure(job, bucket, 0, (count + BLOCK - 1) / BLOCK, sums, maxima);
        join(job, bucket, sums, &maxima, 1);
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
