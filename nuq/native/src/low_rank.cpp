// The entry points of simd/low_rank.cpp: how a matrix is cut among the threads.  The cuts change no bit.
// A matrix is float32[size] in rows of ``columns``; its last row may be shorter.  Factors are rows of their own: [rank,
// rows] and [rank, columns].
#include <algorithm>

#include "isa.h"
#include "threads.h"

NUQ_DECLARE(void, low_rank_left, const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t, int64_t,
            int64_t)
NUQ_DECLARE(void, low_rank_right, const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t, int64_t)
NUQ_DECLARE(void, low_rank_outer, const float*, const float*, int64_t, int64_t, int64_t, float*, int, int64_t, int64_t)

namespace {
constexpr int64_t PORTION = 1 << 15;  // coordinates that are worth a second thread
constexpr int64_t STRIP = 512;        // columns that one thread takes at a time
}  // namespace

// left[k, i] = sum over j of matrix[i, j] right[k, j]
NUQ_EXPORT void nuq_low_rank_left(const float* matrix, int64_t size, int64_t columns, const float* right, int64_t rank,
                                  float* left, int threads) {
    const int64_t rows = (size + columns - 1) / columns, portion = std::max<int64_t>(PORTION / columns, 1);
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < rows; first += portion)
        NUQ_CALL(low_rank_left, matrix, size, columns, right, rank, left, rows, first, std::min(rows, first + portion));
}

// right[k, j] = sum over i of matrix[i, j] left[k, i]
NUQ_EXPORT void nuq_low_rank_right(const float* matrix, int64_t size, int64_t columns, const float* left, int64_t rank,
                                   float* right, int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < columns; first += STRIP)
        NUQ_CALL(low_rank_right, matrix, size, columns, left, rank, right, first, std::min(columns, first + STRIP));
}

// total[i, j] = (or += ) sum over k of left[k, i] right[k, j]
NUQ_EXPORT void nuq_low_rank_outer(const float* left, const float* right, int64_t size, int64_t columns, int64_t rank,
                                   float* total, int accumulate, int threads) {
    const int64_t rows = (size + columns - 1) / columns, portion = std::max<int64_t>(PORTION / columns, 1);
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < rows; first += portion)
        NUQ_CALL(low_rank_outer, left, right, size, columns, rank, total, accumulate, first,
                 std::min(rows, first + portion));
}
