// Which coordinates of a bucket travel: the k with the largest keys (ties: the lowest indices), or all with a key that
// is large enough.
//
// The k largest in one pass over the bucket: a sample tells one key that more than k coordinates reach and one that
// fewer do; the pass keeps the indices of those that reach the first, and only keys between the two have to be put in
// order to find the k-th largest. Where the sample misled, the pass is repeated with a wider gap.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "hash.h"
#include "select.h"
#include "threads.h"

namespace {
constexpr int64_t PORTION = 1 << 16;  // coordinates worth a thread
constexpr int64_t UNSAMPLED = 512;    // so few are all put in order
constexpr int64_t FAILED = -1;        // a coordinate is not finite

// Keys that (about) more and fewer than the wanted number of coordinates reach.
struct Bounds {
    uint32_t reached, missed;
};
constexpr Bounds UNKNOWN{0, UINT32_MAX};

struct Magnitudes {
    const float* x;
    uint32_t key(int64_t i) const {
        uint32_t bits;
        std::memcpy(&bits, x + i, sizeof bits);
        return bits & 0x7fffffffu;
    }
    int64_t collect(int64_t first, int64_t last, uint32_t least, int32_t* to) const {
        uint32_t largest = 0;
        const int64_t kept = NUQ_CALL(collect_magnitudes, x, first, last, least, to, &largest);
        return largest >= nuq::NOT_FINITE ? FAILED : kept;
    }
    Bounds around(int64_t first, int64_t last, int64_t k, double slack) const {
        const int64_t size = last - first, sampled = std::max<int64_t>(128, size / 64), stride = size / sampled;
        const double rank = double(k) * double(sampled) / double(size), margin = slack * (std::sqrt(rank) + 1.0);
        if (rank + margin + 1.0 >= double(sampled)) return UNKNOWN;
        std::vector<uint32_t> keys(static_cast<size_t>(sampled));
        for (int64_t j = 0; j < sampled; ++j) keys[size_t(j)] = key(first + j * stride);
        const auto low = keys.begin() + int64_t(rank + margin);
        std::nth_element(keys.begin(), low, keys.end(), std::greater<uint32_t>());
        if (rank < margin + 1.0) return {*low, UINT32_MAX};
        const auto high = keys.begin() + int64_t(rank - margin);
        std::nth_element(keys.begin(), high, low, std::greater<uint32_t>());
        return {*low, *high};
    }
};

struct Hashes {
    uint32_t k0, k1;
    uint32_t key(int64_t i) const {
        const uint32_t h = random_number(uint32_t(i), k0, k1);
        return ~h;
    }
    int64_t collect(int64_t first, int64_t last, uint32_t least, int32_t* to) const {
        return NUQ_CALL(collect_hashes, k0, k1, first, last, least, to);
    }
    Bounds around(int64_t first, int64_t last, int64_t k, double slack) const {
        const double rank = double(k), margin = slack * (std::sqrt(rank) + 1.0),
                     one = 4294967295.0 / double(last - first);
        const double low = (rank + margin) * one, high = (rank - margin) * one;
        return {low >= 4294967295.0 ? 0 : ~uint32_t(low), high <= 0.0 ? UINT32_MAX : ~uint32_t(high)};
    }
};

// What one thread keeps of its shard: ``count`` indices, ascending.
struct Kept {
    int32_t* indices;
    uint32_t* keys;
    int64_t count = 0, above = 0, equal = 0;
    std::vector<uint32_t> between;
};

// Shards of [first, last), one for each thread, and in each the indices of keys of at least ``least``; false: FAILED.
template <class Keys>
bool collect(const Keys& keys, int64_t first, int64_t last, uint32_t least, int32_t* to, int threads,
             std::vector<Kept>& kept) {
    const int64_t size = last - first, teams = std::max<int64_t>(1, std::min<int64_t>(threads, size / PORTION));
    const int64_t each = (size + teams - 1) / teams;
    kept.assign(size_t(teams), Kept{});
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t) {
        kept[size_t(t)].indices = to + t * each;
        kept[size_t(t)].count = keys.collect(first + std::min(t * each, size), first + std::min((t + 1) * each, size),
                                             least, to + t * each);
    }
    return std::none_of(kept.begin(), kept.end(), [](const Kept& part) { return part.count == FAILED; });
}

// The same, moved together; their number or FAILED.
template <class Keys>
int64_t collect_all(const Keys& keys, int64_t first, int64_t last, uint32_t least, int32_t* to, int threads) {
    std::vector<Kept> kept;
    if (!collect(keys, first, last, least, to, threads, kept)) return FAILED;
    int64_t total = 0;
    for (const Kept& part : kept) {
        if (part.indices != to + total) std::memmove(to + total, part.indices, sizeof(int32_t) * size_t(part.count));
        total += part.count;
    }
    return total;
}

// Of the indices kept the k with the largest keys, ties to the lowest, into ``to``, in order; false where the bounds do
// not hold. room: uint32 for every index.
template <class Keys>
bool largest_of(const Keys& keys, std::vector<Kept>& kept, int64_t k, uint32_t missed, uint32_t* room, int32_t* to) {
    int64_t total = 0;
    for (Kept& part : kept) {
        part.keys = room + total;
        total += part.count;
    }
    if (total < k) return false;
    const int64_t teams = int64_t(kept.size());
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t) {
        Kept& part = kept[size_t(t)];
        for (int64_t j = 0; j < part.count; ++j) part.keys[j] = keys.key(part.indices[j]);
        for (int64_t j = 0; j < part.count; ++j) part.above += part.keys[j] > missed;
        part.between.resize(size_t(part.count - part.above) + 1);
        for (int64_t j = 0, put = 0; j < part.count; ++j) {
            part.between[size_t(put)] = part.keys[j];  // once in vain, at the end
            put += part.keys[j] <= missed;
        }
        part.between.pop_back();
    }
    int64_t rank = k;
    for (const Kept& part : kept) rank -= part.above;
    if (rank <= 0) return false;
    std::vector<uint32_t>& between = kept[0].between;
    for (int64_t t = 1; t < teams; ++t)
        between.insert(between.end(), kept[size_t(t)].between.begin(), kept[size_t(t)].between.end());
    std::nth_element(between.begin(), between.begin() + (rank - 1), between.end(), std::greater<uint32_t>());
    const uint32_t kth = between[size_t(rank - 1)];
    int64_t ties = k;
    for (Kept& part : kept) {
        part.above = std::count_if(part.keys, part.keys + part.count, [=](uint32_t key) { return key > kth; });
        part.equal = std::count(part.keys, part.keys + part.count, kth);
        ties -= part.above;
    }
    std::vector<int32_t*> begins;
    for (Kept& part : kept) {
        begins.push_back(to);
        part.equal = std::min(part.equal, ties);
        ties -= part.equal;
        to += part.above + part.equal;
    }
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t) {
        const Kept& part = kept[size_t(t)];
        int32_t* const out = begins[size_t(t)];
        const int64_t wanted = part.above + part.equal;
        for (int64_t j = 0, done = 0, equal = part.equal; done < wanted; ++j) {
            const bool tie = part.keys[j] == kth && equal > 0;
            out[done] = part.indices[j];
            done += part.keys[j] > kth || tie;
            equal -= tie;
        }
    }
    return true;
}

// scratch: int32[last - first]; room: uint32 of as many.
template <class Keys>
bool top(const Keys& keys, int64_t first, int64_t last, int64_t k, int32_t* to, int32_t* scratch, uint32_t* room,
         int threads) {
    std::vector<Kept> kept;
    for (double slack = 3.0;; slack *= 4.0) {  // in the end the bounds are UNKNOWN, which cannot fail
        const Bounds bounds = last - first <= UNSAMPLED ? UNKNOWN : keys.around(first, last, k, slack);
        if (!collect(keys, first, last, bounds.reached, scratch, threads, kept)) return false;
        if (largest_of(keys, kept, k, bounds.missed, room, to)) return true;
    }
}

template <class Keys>
int64_t top_of_buckets(const Keys& keys, int64_t n, int64_t bucket, int64_t k, int64_t k_last, int32_t* to,
                       int threads) {
    const int64_t buckets = (n + bucket - 1) / bucket;
    const bool beside = buckets >= threads;  // a thread takes whole buckets
    std::atomic<bool> finite{true};
#pragma omp parallel num_threads(beside ? threads : 1) if (beside && n > PORTION)
    {
        const size_t size = size_t(std::min(bucket, n));
        const std::unique_ptr<int32_t[]> scratch(new int32_t[size]);  // what is not written costs no memory
        const std::unique_ptr<uint32_t[]> room(new uint32_t[size]);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < buckets; ++b) {
            const int64_t first = b * bucket, last = std::min(n, first + bucket);
            if (!top(keys, first, last, b + 1 < buckets ? k : k_last, to + b * k, scratch.get(), room.get(),
                     beside ? 1 : threads))
                finite = false;
        }
    }
    return finite ? 1 : 0;
}
}  // namespace

// The k coordinates of largest |x| of every bucket (k_last of the last one), ascending, into ``to``; 0 where one is not
// finite.
NUQ_EXPORT int64_t nuq_top_magnitudes(const float* x, int64_t n, int64_t bucket, int64_t k, int64_t k_last, int32_t* to,
                                      int threads) {
    return top_of_buckets(Magnitudes{x}, n, bucket, k, k_last, to, nuq::team(true, threads));
}

// The k coordinates of every bucket whose random numbers are smallest.
NUQ_EXPORT void nuq_top_hashes(int64_t n, int64_t bucket, int64_t k, int64_t k_last, uint32_t k0, uint32_t k1,
                               int32_t* to, int threads) {
    top_of_buckets(Hashes{k0, k1}, n, bucket, k, k_last, to, nuq::team(true, threads));
}

// The coordinates with a key of at least ``least``, into ``to`` (room for n); their number, -1 where one is not finite.
NUQ_EXPORT int64_t nuq_at_least(const float* x, int64_t n, uint32_t least, int32_t* to, int threads) {
    return collect_all(Magnitudes{x}, 0, n, least, to, nuq::team(true, threads));
}

// The k largest of ``count`` indices (those with an earlier index win ties), ascending, into ``to``.
NUQ_EXPORT void nuq_top_of(const float* x, int32_t* indices, int64_t count, int64_t k, int32_t* to) {
    const std::unique_ptr<uint32_t[]> room(new uint32_t[size_t(count)]);
    std::vector<Kept> kept(1);
    kept[0].indices = indices;
    kept[0].count = count;
    largest_of(Magnitudes{x}, kept, k, UINT32_MAX, room.get(), to);
}

// Of every bucket the coordinates with 2|x| >= its largest |x|, none of a bucket of zeros, into ``to`` (room for n);
// their number.
NUQ_EXPORT int64_t nuq_half_of_largest(const float* x, int64_t n, int64_t bucket, int32_t* to, int threads) {
    int64_t kept = 0;
    threads = nuq::team(true, threads);
    for (int64_t first = 0; first < n; first += bucket) {
        const int64_t last = std::min(n, first + bucket), portions = (last - first + PORTION - 1) / PORTION;
        uint32_t most = 0;
#pragma omp parallel for num_threads(threads) if (portions > 1 && threads > 1) reduction(max : most)
        for (int64_t p = 0; p < portions; ++p) {
            const int64_t from = first + p * PORTION;
            most = std::max(most, NUQ_CALL(largest_magnitude, x, from, std::min(last, from + PORTION)));
        }
        if (most >= nuq::NOT_FINITE) return FAILED;
        if (most == 0) continue;
        // denormal: keys count the smallest number
        const uint32_t half = most >= 2u << 23 ? most - (1u << 23) : (most + 1) / 2;
        kept += collect_all(Magnitudes{x}, first, last, half, to + kept, threads);
    }
    return kept;
}

// total[indices[j]] += values[j], or = ; the indices differ and lie within the total.
NUQ_EXPORT void nuq_scatter(const int32_t* indices, const float* values, int64_t count, float* total, int accumulate) {
    if (accumulate)
        for (int64_t j = 0; j < count; ++j) total[indices[j]] += values[j];
    else
        for (int64_t j = 0; j < count; ++j) total[indices[j]] = values[j];
}
