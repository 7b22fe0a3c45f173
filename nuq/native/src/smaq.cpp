// The entry points of simd/smaq.cpp: how a vector is cut among the threads.  The cuts change no bit.
#include "smaq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "threads.h"

namespace {
constexpr int64_t PORTION = 32;  // blocks that a thread takes at a time
// bytes of a block: mask, classes and seven bits
constexpr int64_t LARGEST = 2 * nuq::SMAQ_BLOCK / 8 + 7 * nuq::SMAQ_BLOCK / 8;

int64_t blocks_of(int64_t size) { return (size + nuq::SMAQ_BLOCK - 1) / nuq::SMAQ_BLOCK; }

double halved(std::vector<double>& values) {
    for (size_t h = values.size() / 2; h > 0; h /= 2)
        for (size_t i = 0; i < h; ++i) values[i] += values[i + h];
    return values[0];
}
}  // namespace

// sums: float64[2], of (x - pivot) and of its square over the nonzeros; bounds: float32[2], their lowest and highest.
// Returns the zeros.
NUQ_EXPORT int64_t nuq_smaq_measure(const nuq::Smaq* job, double pivot, double* sums, float* bounds, int threads) {
    const int64_t blocks = blocks_of(job->size);
    size_t leaves = 1;
    while (leaves < size_t(blocks)) leaves *= 2;
    std::vector<double> each(leaves), squares(leaves);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    nuq::SmaqBounds all{infinity, -infinity, 0};
#pragma omp parallel for schedule(static) num_threads(nuq::team(blocks > PORTION, threads))
    for (int64_t first = 0; first < blocks; first += PORTION) {
        nuq::SmaqBounds bounds{infinity, -infinity, 0};
        for (int64_t block = first; block < std::min(blocks, first + PORTION); ++block)
            NUQ_CALL(smaq_measure, *job, block, pivot, each[size_t(block)], squares[size_t(block)], bounds);
#pragma omp critical
        all = {std::min(all.lowest, bounds.lowest), std::max(all.highest, bounds.highest), all.zeros + bounds.zeros};
    }
    sums[0] = halved(each), sums[1] = halved(squares);
    bounds[0] = all.lowest, bounds[1] = all.highest;
    return all.zeros;
}

// Bytes that ``nuq_smaq_encode`` needs to write.
NUQ_EXPORT int64_t nuq_smaq_room(int64_t size) {
    const int64_t portions = (blocks_of(size) + PORTION - 1) / PORTION;
    return portions * (std::min(PORTION, blocks_of(size)) * LARGEST + nuq::SMAQ_SLACK);
}

// codes, outliers: uint16[blocks]; room: see above, with gaps that ``nuq_smaq_join`` closes; sizes: int64[portions].
// Returns the bytes.
NUQ_EXPORT int64_t nuq_smaq_encode(const nuq::Smaq* job, uint16_t* codes, uint16_t* outliers, uint8_t* room,
                                   int64_t* sizes, int threads) {
    const int64_t blocks = blocks_of(job->size), slot = std::min(PORTION, blocks) * LARGEST + nuq::SMAQ_SLACK;
    int64_t bytes = 0;
#pragma omp parallel for schedule(static) num_threads(nuq::team(blocks > PORTION, threads)) reduction(+ : bytes)
    for (int64_t first = 0; first < blocks; first += PORTION) {
        uint8_t* const begin = room + first / PORTION * slot;
        uint8_t* to = begin;
        for (int64_t block = first; block < std::min(blocks, first + PORTION); ++block)
            to = NUQ_CALL(smaq_encode, *job, block, codes[block], outliers[block], to);
        sizes[first / PORTION] = to - begin;
        bytes += to - begin;
    }
    return bytes;
}

NUQ_EXPORT void nuq_smaq_join(int64_t size, const uint8_t* room, const int64_t* sizes, uint8_t* to, int threads) {
    const int64_t blocks = blocks_of(size), slot = std::min(PORTION, blocks) * LARGEST + nuq::SMAQ_SLACK;
    const int64_t portions = (blocks + PORTION - 1) / PORTION;
    std::vector<int64_t> starts(size_t(portions) + 1);
    for (int64_t i = 0; i < portions; ++i) starts[size_t(i) + 1] = starts[size_t(i)] + sizes[i];
#pragma omp parallel for schedule(static) num_threads(nuq::team(portions > 1, threads))
    for (int64_t i = 0; i < portions; ++i) std::memcpy(to + starts[size_t(i)], room + i * slot, size_t(sizes[i]));
}

// Returns 1 where the bytes are damaged, the total being as it was.
NUQ_EXPORT int nuq_smaq_decode(const nuq::Smaq* job, const uint16_t* codes, const uint16_t* outliers,
                               const uint8_t* from, int64_t bytes, int threads) {
    const int64_t blocks = blocks_of(job->size);
    std::vector<int64_t> starts(size_t(blocks) + 1);
    const auto length = [&](int64_t block) { return std::min(nuq::SMAQ_BLOCK, job->size - block * nuq::SMAQ_BLOCK); };
    const auto held = [&](int64_t block) { return job->masked ? int64_t(codes[block]) : length(block); };
    for (int64_t block = 0; block < blocks; ++block) {
        if (held(block) > length(block) || outliers[block] > held(block)) return 1;
        starts[size_t(block) + 1] =
            starts[size_t(block)] + nuq::SmaqParts(*job, length(block), held(block), outliers[block]).bytes();
    }
    if (starts[size_t(blocks)] != bytes) return 1;
    int damaged = 0;
#pragma omp parallel for schedule(static) num_threads(nuq::team(blocks > PORTION, threads)) reduction(| : damaged)
    for (int64_t block = 0; block < blocks; ++block)
        damaged |=
            !NUQ_CALL(smaq_whole, *job, length(block), held(block), outliers[block], from + starts[size_t(block)]);
    if (damaged) return 1;
#pragma omp parallel for schedule(static) num_threads(nuq::team(blocks > PORTION, threads))
    for (int64_t block = 0; block < blocks; ++block) {
        const uint8_t* at = from + starts[size_t(block)];
        uint8_t padded[LARGEST + nuq::SMAQ_SLACK];
        if (starts[size_t(block) + 1] + nuq::SMAQ_SLACK > bytes) {
            const size_t here = size_t(starts[size_t(block) + 1] - starts[size_t(block)]);
            std::memcpy(padded, at, here);
            std::memset(padded + here, 0, size_t(nuq::SMAQ_SLACK));
            at = padded;
        }
        NUQ_CALL(smaq_decode, *job, block, held(block), outliers[block], at);
    }
    return 0;
}
