// A matrix times few vectors, and few products of vectors (nuq/kernels/low_rank.py, which says in which order sums are
// taken).
#include <algorithm>

#include "../isa.h"
#include "vector.h"

NUQ_DECLARE(void, low_rank_left, const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t, int64_t,
            int64_t)
NUQ_DECLARE(void, low_rank_right, const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t, int64_t)
NUQ_DECLARE(void, low_rank_outer, const float*, const float*, int64_t, int64_t, int64_t, float*, int, int64_t, int64_t)

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int64_t LANES = 32;   // partial sums of a row
constexpr int64_t BLOCK = 256;  // rows whose sum is taken first
constexpr int64_t STRIP = 512;  // columns, as in ../low_rank.cpp
constexpr int VECTORS = LANES / W;

// Scalar products of one row with ``count`` (1 or 2) vectors that lie ``columns`` apart.
template <int count>
inline void products(const float* row, int64_t length, const float* right, int64_t columns, float* sums) {
    F lanes[count][VECTORS];
    for (int k = 0; k < count; ++k)
        for (int v = 0; v < VECTORS; ++v) lanes[k][v] = splat(0.0f);
    int64_t j = 0;
    for (; j + LANES <= length; j += LANES)
        for (int v = 0; v < VECTORS; ++v) {
            const F x = load<F>(row + j + v * W);
            for (int k = 0; k < count; ++k) lanes[k][v] = lanes[k][v] + x * load<F>(right + k * columns + j + v * W);
        }
    for (int k = 0; k < count; ++k) {
        float all[LANES];
        for (int v = 0; v < VECTORS; ++v) store(all + v * W, lanes[k][v]);
        for (int64_t rest = j; rest < length; ++rest)
            all[rest - j] = all[rest - j] + row[rest] * right[k * columns + rest];
        for (int64_t half = LANES / 2; half > 0; half /= 2)
            for (int64_t lane = 0; lane < half; ++lane) all[lane] = all[lane] + all[lane + half];
        sums[k] = all[0];
    }
}
}  // namespace

void low_rank_left(const float* matrix, int64_t size, int64_t columns, const float* right, int64_t rank, float* left,
                   int64_t rows, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
        const float* row = matrix + i * columns;
        const int64_t length = std::min(columns, size - i * columns);
        float sums[2];
        for (int64_t k = 0; k < rank; k += 2) {
            if (k + 1 < rank)
                products<2>(row, length, right + k * columns, columns, sums);
            else
                products<1>(row, length, right + k * columns, columns, sums);
            left[k * rows + i] = sums[0];
            if (k + 1 < rank) left[(k + 1) * rows + i] = sums[1];
        }
    }
}

// Columns [first, last), at most STRIP of them.
void low_rank_right(const float* matrix, int64_t size, int64_t columns, const float* left, int64_t rank, float* right,
                    int64_t first, int64_t last) {
    const int64_t rows = (size + columns - 1) / columns;
    float block[STRIP];
    for (int64_t k = 0; k < rank; ++k) std::fill(right + k * columns + first, right + k * columns + last, 0.0f);
    for (int64_t start = 0; start < rows; start += BLOCK) {
        const int64_t end = std::min(rows, start + BLOCK);
        for (int64_t k = 0; k < rank; ++k) {
            std::fill(block, block + (last - first), 0.0f);
            const float* factor = left + k * rows;
            int64_t i = start;
            for (; i + 4 <= end && (i + 4) * columns <= size; i += 4) {
                const float* row = matrix + i * columns + first;
                const float a = factor[i], b = factor[i + 1], c = factor[i + 2], d = factor[i + 3];
                int64_t j = 0;
                for (; j + W <= last - first; j += W) {
                    F sum = load<F>(block + j) + load<F>(row + j) * splat(a);
                    sum = sum + load<F>(row + columns + j) * splat(b);
                    sum = sum + load<F>(row + 2 * columns + j) * splat(c);
                    store(block + j, sum + load<F>(row + 3 * columns + j) * splat(d));
                }
                for (; j < last - first; ++j) {
                    float sum = block[j] + row[j] * a;
                    sum = sum + row[columns + j] * b;
                    sum = sum + row[2 * columns + j] * c;
                    block[j] = sum + row[3 * columns + j] * d;
                }
            }
            for (; i < end; ++i) {
                const int64_t there = std::min(last, size - i * columns) - first;
                const float* row = matrix + i * columns + first;
                for (int64_t j = 0; j < there; ++j) block[j] = block[j] + row[j] * factor[i];
            }
            float* to = right + k * columns + first;
            for (int64_t j = 0; j < last - first; ++j) to[j] = to[j] + block[j];
        }
    }
}

void low_rank_outer(const float* left, const float* right, int64_t size, int64_t columns, int64_t rank, float* total,
                    int accumulate, int64_t first, int64_t last) {
    const int64_t rows = (size + columns - 1) / columns;
    for (int64_t i = first; i < last; ++i) {
        float* to = total + i * columns;
        const int64_t length = std::min(columns, size - i * columns);
        int64_t j = 0;
        for (; j + W <= length; j += W) {
            F sum = load<F>(right + j) * splat(left[i]);
            for (int64_t k = 1; k < rank; ++k) sum = sum + load<F>(right + k * columns + j) * splat(left[k * rows + i]);
            store(to + j, accumulate ? load<F>(to + j) + sum : sum);
        }
        for (; j < length; ++j) {
            float sum = right[j] * left[i];
            for (int64_t k = 1; k < rank; ++k) sum = sum + right[k * columns + j] * left[k * rows + i];
            to[j] = accumulate ? to[j] + sum : sum;
        }
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
