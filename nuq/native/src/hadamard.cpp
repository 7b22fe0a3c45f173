// The entry point of the rotation: how blocks are cut among the threads.
#include "hadamard.h"

#include <algorithm>
#include <cmath>

namespace {
using namespace nuq;

constexpr int64_t PORTION = 1 << 15;  // coordinates that a thread takes at a time
constexpr int64_t CACHED = 1 << 18;   // coordinates that a thread's own cache holds

float scale_of(int64_t size) { return float(1.0 / std::sqrt(double(size))); }

// A block larger than a tile: tiles first, then further stages across all of it, three at a time.
void rotate_large(const Rotation& job, int64_t start, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t first = 0; first < size; first += PORTION) {
        const int64_t end = std::min(size, first + PORTION);
        NUQ_CALL(rotate_tiles, job, start + first, start + end, TILE, 1.0f, false);
    }
    for (int64_t distance = TILE; distance < size;) {
        const int radix = int(std::min<int64_t>(8, size / distance));
        const int64_t span = radix * distance, columns = std::min(distance, PORTION / radix);
        const int64_t pieces = distance / columns, count = size / span * pieces;
        const bool ends = span == size;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
        for (int64_t i = 0; i < count; ++i) {
            const int64_t column = i % pieces * columns;
            NUQ_CALL(rotate_rows, job, start + i / pieces * span, distance, radix, column, column + columns,
                     scale_of(size), ends);
        }
        distance = span;
    }
}

// Coordinates [first, last): blocks of one size.
void rotate(const Rotation& job, int64_t first, int64_t last, int64_t size, int threads) {
    threads = int(std::max<int64_t>(1, std::min<int64_t>(threads, (last - first) / PORTION)));
    if (size > TILE) {
        // Blocks of their own for each thread, out of its own cache, or all threads in one block after the other.
        const bool apart = size <= CACHED && (last - first) / size >= threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (apart && threads > 1)
        for (int64_t start = first; start < last; start += size) rotate_large(job, start, size, apart ? 1 : threads);
        return;
    }
    const int64_t portion = std::max(PORTION, size);
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t start = first; start < last; start += portion)
        NUQ_CALL(rotate_tiles, job, start, std::min(last, start + portion), size, scale_of(size), true);
}
}  // namespace

// block: a power of two.
NUQ_EXPORT void nuq_hadamard(float* vector, int64_t count, int64_t block, uint32_t k0, uint32_t k1, int inverse,
                             int threads) {
    const Rotation job{vector, k0, k1, inverse != 0};
    int64_t start = count / block * block;
    if (start) rotate(job, 0, start, block, threads);
    for (int64_t size = block / 2; size; size /= 2)
        if ((count - start) & size) {
            rotate(job, start, start + size, size, threads);
            start += size;
        }
}
