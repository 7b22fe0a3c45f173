// From a coordinate to its code: steps 3 to 5 of the specification, a vector at a time.
#pragma once
#include <type_traits>

#include "../level_tables.h"
#include "vector.h"

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
    F normalized(F x) const { return clamped(x * inverse, splat(t)); }
};

inline int code_bits(int num_levels) {
    int bits = 1;
    while (1 << bits < num_levels) ++bits;
    return bits;
}

// Step 5.
template <class Noise>
struct Uniform {
    Noise noise;
    int fraction_bits;
    int32_t half;
    Bucket bucket;

    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const I added = (I)shifted_right(noise.template at<ALIGNED>(c), 32 - fraction_bits);
        return (U)shifted_right(truncate(bucket.normalized(x) * float(half)) + half + added, fraction_bits);
    }
};

// --- step 4 --------------------------------------------------------------------------------------------------------

// What the intervals of one bucket hold: the call's, but for the ends under quantile.
struct Intervals {
    alignas(64) float lower[MOST_LEVELS], inverse_width[MOST_LEVELS];
    int last;
    float second;  // level

    explicit Intervals(const LevelTables& tables) : last(tables.last), second(tables.search[1]) {
        const size_t bytes = sizeof(float) * size_t(std::max(32, tables.num_levels));
        std::memcpy(lower, tables.lower, bytes);
        std::memcpy(inverse_width, tables.inverse_width, bytes);
    }

    void set_ends(float t) {
        lower[0] = -t;
        inverse_width[last] = 1.0f / (t - lower[last]);
        if (last > 0) inverse_width[0] = 1.0f / (second - lower[0]);
    }
};

// A search gives k, the number of interior levels <= r, and then the k-th interval's lower end and inverse width.

// Binary, SIZE entries of each table being in registers.
template <int SIZE, int DEPTH>
struct InRegisters {
    float middle;
    Table<SIZE> tables[DEPTH], lower_ends, inverse_widths;

    InRegisters(const LevelTables& levels, const Intervals& intervals)
        : middle(levels.search[1 << (DEPTH - 1)]),
          lower_ends(intervals.lower),
          inverse_widths(intervals.inverse_width) {
        for (int i = 0; i < DEPTH; ++i) tables[i] = Table<SIZE>(levels.search + (1 << i));
    }
    U find(F r) const {
        U k = add_where_not_above(U{}, splat(middle), r, 1u << (DEPTH - 1));
        for (int i = DEPTH - 2; i >= 0; --i) k = add_where_not_above(k, tables[i][k], r, 1u << i);
        return k;
    }
    F lower(U k) const { return lower_ends[k]; }
    F inverse_width(U k) const { return inverse_widths[k]; }
};

// Binary, in memory.
struct Halved {
    const LevelTables& levels;
    const Intervals& intervals;

    Halved(const LevelTables& levels, const Intervals& intervals) : levels(levels), intervals(intervals) {}
    U find(F r) const {
        U k{};
        for (int step = 1 << levels.depth >> 1; step; step >>= 1)
            k = add_where_not_above(k, gathered(levels.search + step, k), r, uint32_t(step));
        return k;
    }
    F lower(U k) const { return gathered(intervals.lower, k); }
    F inverse_width(U k) const { return gathered(intervals.inverse_width, k); }
};

#if defined(NUQ_ISA_AVX512) || defined(NUQ_ISA_AVX2)
// Binary: the first steps from registers, since the j-th compares with one of 2^j levels only, the others in memory.
struct Prefixed : Halved {
    static constexpr int STEPS = W == 16 ? 6 : 5;
    int rest;
    Table<W> tables[STEPS - 1];
    Table<2 * W> widest;

    Prefixed(const LevelTables& levels, const Intervals& intervals) : Halved(levels, intervals) {
        rest = std::max(levels.depth - STEPS, 0);
        for (int j = 0; j < STEPS; ++j) {
            float entries[2 * W] = {};
            for (int p = 0; p < 1 << j; ++p) entries[p] = levels.search[(2 * p + 1) << (STEPS - 1 - j + rest)];
            if (j < STEPS - 1) tables[j] = Table<W>(entries);
            else widest = Table<2 * W>(entries);
        }
    }
    U find(F r) const {
        U k{};
        for (int j = 0; j < STEPS - 1; ++j) k = add_where_not_above(k + k, tables[j][k], r, 1);
        k = add_where_not_above(k + k, widest[k], r, 1) << rest;
        for (int step = 1 << rest >> 1; step; step >>= 1)
            k = add_where_not_above(k, gathered(levels.search + step, k), r, uint32_t(step));
        return k;
    }
};
using InMemory = Prefixed;
#else
using InMemory = Halved;
#endif

// By comparison with every level: for a few levels, where registers cannot be looked up.
struct Counted : Halved {
    using Halved::Halved;
    U find(F r) const {
        U k{};
        for (int i = 1; i <= levels.last; ++i) k = add_where_not_above(k, splat(levels.search[i]), r, 1);
        return k;
    }
};

struct Thresholds {};  // in place of a noise: no stochastic rounding

template <class Search, class Noise>
struct Arbitrary {
    Noise noise;
    Bucket bucket;
    Search search;

    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const F r = bucket.normalized(x);
        const U k = search.find(r);
        if constexpr (std::is_same_v<Noise, Thresholds>) {
            return k;
        } else {
            const F q = (r - search.lower(k)) * search.inverse_width(k);
            return add_where_below(k, to_float(noise.template at<ALIGNED>(c) >> 8) * 0x1p-24f, q);
        }
    }
};
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
