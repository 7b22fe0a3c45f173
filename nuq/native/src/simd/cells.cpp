// Clusters by binary search, cells by hash.
#include "../cells.h"
#include "../hash.h"

#include <algorithm>
#include <cmath>

#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int64_t CHUNK = 1024;  // coordinates whose hashes are made at a time

// The specification's hash of coordinates first .. first + count.
inline void hashes(uint32_t k0, uint32_t k1, int64_t first, int64_t count, uint32_t* to) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t h = random_number(uint32_t(first) + uint32_t(i), k0, k1);
        to[i] = h;
    }
}

// Where the cells of each number begin, and how many there are: sizes below 2^32.
struct Starts {
    uint32_t sizes[256], starts[256];
    Starts(const int64_t* cells, int64_t times = 1) {
        int64_t at = 0;
        for (int i = 0; i < 256; ++i) {
            sizes[i] = uint32_t(cells[i]), starts[i] = uint32_t(at);
            at += cells[i] * times;
        }
    }
    uint32_t within(int i, uint32_t hash) const { return uint32_t(uint64_t(hash) * sizes[i] >> 32); }
    uint32_t place(int i, uint32_t hash) const { return starts[i] + within(i, hash); }
};
constexpr int FEW = 16;  // clusters of a sign: so many comparisons take less time than a search in memory

// Of W coordinates.  Infinity stands behind the last threshold, and no magnitude is below zero.
template <bool COUNTED>
inline U number_of(F x, const float* table, int room, int clusters, U first) {
    const F zero{};
    const U below = (U)(x < zero);
    U k{};
    if (COUNTED) {
        const F minus = zero - x;
        for (int i = 0; i + 1 < clusters; ++i) k = add_where_below(k, splat(table[i]), x);
        for (int i = 0; i + 1 < clusters; ++i) k = add_where_below(k, splat(table[room + i]), minus);
    } else {
        const F magnitude = (F)((U)x & 0x7fffffffu);
        const U start = below & uint32_t(room);
        for (int step = room / 2; step; step /= 2)
            k = add_where_not_above(k + uint32_t(step), magnitude, gathered(table + step - 1, k + start),
                                    uint32_t(-step));
    }
    return k + (below & uint32_t(clusters)) + (first & (U)(x != zero));
}

template <bool COUNTED>
void numbers(const float* x, int64_t size, const float* table, int room, int clusters, int first, uint8_t* ids) {
    const U from = splat(uint32_t(first));
    int64_t i = 0;
    for (; i + W <= size; i += W) {
        prefetch(x + i + AHEAD);
        store_codes(ids + i, number_of<COUNTED>(load<F>(x + i), table, room, clusters, from));
    }
    if (i < size) {
        uint8_t last[W];
        store_codes(last, number_of<COUNTED>(load_first(x + i, size - i), table, room, clusters, from));
        std::memcpy(ids + i, last, size_t(size - i));
    }
}
}  // namespace

void cell_numbers(const float* x, int64_t size, const float* table, int room, int clusters, int first, uint8_t* ids) {
    if (clusters <= FEW) return numbers<true>(x, size, table, room, clusters, first, ids);
    numbers<false>(x, size, table, room, clusters, first, ids);
}

void cell_sums(const Cells& job, const float* x, const uint8_t* ids, int64_t first, int64_t last) {
    alignas(64) uint32_t h[CHUNK];
    const Starts starts(job.cells);
    for (int64_t at = first; at < last; at += CHUNK) {
        const int64_t count = std::min(CHUNK, last - at);
        hashes(job.k0, job.k1, at, count, h);
        for (int64_t i = 0; i < count; ++i) {
            const int number = ids[at + i];
            if (!starts.sizes[number]) continue;
            const uint32_t place = starts.place(number, h[i]);
            Sum& cell = job.sums[place];
            cell.sum += std::llrint(double(x[at + i]) * job.scales[number]);
            ++cell.count;
        }
    }
}

int cell_spread(const uint8_t* ids, int64_t first, int64_t last, const int64_t* cells, const float* table, uint32_t k0,
                uint32_t k1, float* out) {
    alignas(64) uint32_t h[CHUNK];
    const Starts starts(cells);
    bool missing[256];
    for (int i = 0; i < 256; ++i) missing[i] = i && !cells[i];
    const bool zeros = !cells[0];
    bool bad = false;
    for (int64_t at = first; at < last; at += CHUNK) {
        const int64_t count = std::min(CHUNK, last - at);
        hashes(k0, k1, at, count, h);
        for (int64_t i = 0; i < count; ++i) bad |= missing[ids[at + i]];
        if (bad) return 1;
        for (int64_t i = 0; i < count; ++i) {
            const int number = ids[at + i];
            out[at + i] = zeros && !number ? 0.0f : table[starts.place(number, h[i])];
        }
    }
    return 0;
}

void minmax_insert(const Sketch& job, const uint8_t* ids, const uint8_t* groups, const uint8_t* within, int64_t first,
                   int64_t last, uint8_t* found, uint8_t* cells) {
    alignas(64) uint32_t h[CHUNK];
    const Starts starts(job.columns, job.rows);
    for (int64_t at = first; at < last; at += CHUNK) {
        const int64_t count = std::min(CHUNK, last - at);
        for (int64_t i = 0; i < count; ++i) found[at + i] = groups[ids[at + i]];
        for (int row = 0; row < job.rows; ++row) {
            hashes(job.words[2 * row], job.words[2 * row + 1], at, count, h);
            for (int64_t i = 0; i < count; ++i) {
                const int group = found[at + i];
                uint8_t& cell = cells[starts.place(group, h[i]) + uint32_t(row) * starts.sizes[group]];
                cell = std::min(cell, within[ids[at + i]]);
            }
        }
    }
}

void minmax_query(const Sketch& job, const uint8_t* groups, int64_t first, int64_t last, const uint8_t* cells,
                  uint8_t* found) {
    alignas(64) uint32_t h[CHUNK];
    const Starts starts(job.columns, job.rows);
    for (int64_t at = first; at < last; at += CHUNK) {
        const int64_t count = std::min(CHUNK, last - at);
        std::fill(found + at, found + at + count, uint8_t(0));
        for (int row = 0; row < job.rows; ++row) {
            hashes(job.words[2 * row], job.words[2 * row + 1], at, count, h);
            for (int64_t i = 0; i < count; ++i) {
                const int group = groups[at + i];
                found[at + i] =
                    std::max(found[at + i], cells[starts.place(group, h[i]) + uint32_t(row) * starts.sizes[group]]);
            }
        }
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
