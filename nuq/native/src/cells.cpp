// The entry points of simd/cells.cpp: how a vector is cut among the threads.  Sums are of integers and minima are
// minima, so the cuts change no bit.
#include "cells.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "threads.h"

namespace {
constexpr int64_t PORTION = 1 << 15;  // coordinates that a thread takes at a time
constexpr int64_t ENOUGH = 1 << 16;   // worth a thread

int64_t num_teams(int64_t size, int threads) {
    return std::max<int64_t>(1, std::min<int64_t>(nuq::team(true, threads), size / ENOUGH));
}
}  // namespace

// table: float32[2, room], rising magnitudes, infinity behind the last; room: a power of two.
NUQ_EXPORT void nuq_cell_numbers(const float* x, int64_t size, const float* table, int room, int clusters, int first,
                                 uint8_t* ids, int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > ENOUGH, threads))
    for (int64_t at = 0; at < size; at += PORTION)
        NUQ_CALL(cell_numbers, x + at, std::min(PORTION, size - at), table, room, clusters, first, ids + at);
}

NUQ_EXPORT void nuq_cell_counted(const uint8_t* ids, int64_t size, int64_t* counts, int threads) {
    const int64_t teams = num_teams(size, threads), each = (size + teams - 1) / teams;
    std::vector<int64_t> found(size_t(teams) * 1024);
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t) {
        int64_t* mine = &found[size_t(t) * 1024];  // four tables, since one number often follows itself
        const int64_t last = std::min((t + 1) * each, size);
        int64_t i = t * each;
        for (; i + 4 <= last; i += 4)
            for (int k = 0; k < 4; ++k) ++mine[256 * k + ids[i + k]];
        for (; i < last; ++i) ++mine[ids[i]];
    }
    for (size_t i = 0; i < found.size(); ++i) counts[i & 255] += found[i];
}

// cells: int64[256]; sums: int64[total, 2], sums and counts, zero.
NUQ_EXPORT void nuq_cell_sums(const float* x, const uint8_t* ids, int64_t size, const int64_t* cells,
                              const double* scales, int64_t total, uint32_t k0, uint32_t k1, nuq::Sum* sums,
                              int threads) {
    const int64_t teams = num_teams(size, threads), each = (size + teams - 1) / teams;
    std::vector<std::vector<nuq::Sum>> more(static_cast<size_t>(teams));
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t) {
        if (t) more[size_t(t)].resize(size_t(total));
        const nuq::Cells job{cells, scales, k0, k1, t ? more[size_t(t)].data() : sums};
        NUQ_CALL(cell_sums, job, x, ids, t * each, std::min((t + 1) * each, size));
    }
    for (size_t t = 1; t < size_t(teams); ++t)
        for (size_t i = 0; i < size_t(total); ++i) sums[i].sum += more[t][i].sum, sums[i].count += more[t][i].count;
}

// 1 where a number other than 0 has no cells.
NUQ_EXPORT int nuq_cell_spread(const uint8_t* ids, int64_t size, const int64_t* cells, const float* table, uint32_t k0,
                               uint32_t k1, float* out, int threads) {
    std::atomic<int> bad{0};
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > ENOUGH, threads))
    for (int64_t at = 0; at < size; at += PORTION)
        if (NUQ_CALL(cell_spread, ids, at, std::min(at + PORTION, size), cells, table, k0, k1, out)) bad = 1;
    return bad;
}

// groups, within: uint8[256], of a number; found: uint8[size], every coordinate's group; columns: int64[256], of a
// group; words: uint32[rows, 2]; cells: uint8[total], all ``most``.
NUQ_EXPORT void nuq_minmax_insert(const uint8_t* ids, int64_t size, const uint8_t* groups, const uint8_t* within,
                                  const int64_t* columns, const uint32_t* words, int rows, int64_t total, int most,
                                  uint8_t* found, uint8_t* cells, int threads) {
    const int64_t teams = num_teams(size, threads), each = (size + teams - 1) / teams;
    std::vector<std::vector<uint8_t>> more(static_cast<size_t>(teams));
#pragma omp parallel for num_threads(int(teams)) schedule(static, 1) if (teams > 1)
    for (int64_t t = 0; t < teams; ++t) {
        if (t) more[size_t(t)].assign(size_t(total), uint8_t(most));
        const nuq::Sketch job{columns, words, rows};
        uint8_t* mine = t ? more[size_t(t)].data() : cells;
        NUQ_CALL(minmax_insert, job, ids, groups, within, t * each, std::min((t + 1) * each, size), found, mine);
    }
    for (size_t t = 1; t < size_t(teams); ++t)
        for (size_t i = 0; i < size_t(total); ++i) cells[i] = std::min(cells[i], more[t][i]);
}

// groups: uint8[n], of every coordinate.
NUQ_EXPORT void nuq_minmax_query(const uint8_t* groups, int64_t size, const int64_t* columns, const uint32_t* words,
                                 int rows, const uint8_t* cells, uint8_t* found, int threads) {
    const nuq::Sketch job{columns, words, rows};
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > ENOUGH, threads))
    for (int64_t at = 0; at < size; at += PORTION)
        NUQ_CALL(minmax_query, job, groups, at, std::min(at + PORTION, size), cells, found);
}
