// The entry points of simd/base_delta.cpp: how a vector is cut among the threads.  The cuts change no bit.
#include "base_delta.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "threads.h"

namespace {
constexpr int64_t PORTION = 1024;  // blocks that a thread takes at a time

int64_t blocks_of(int64_t size) { return (size + nuq::DELTA_BLOCK - 1) / nuq::DELTA_BLOCK; }
int64_t slot_of(int bits) { return PORTION * nuq::DELTA_BLOCK / 8 * bits + nuq::DELTA_SLACK; }
int64_t portions_of(int64_t size) { return (blocks_of(size) + PORTION - 1) / PORTION; }
}  // namespace

// Bytes that ``nuq_base_delta_encode`` needs to write.
NUQ_EXPORT int64_t nuq_base_delta_room(int64_t size, int bits) {
    return blocks_of(size) * nuq::DELTA_BLOCK / 8 * bits + portions_of(size) * nuq::DELTA_SLACK;
}

// kinds, exponents: uint8[blocks]; data: see above.  Returns the bytes of data.
NUQ_EXPORT int64_t nuq_base_delta_encode(const float* vector, int64_t size, int bits, int stochastic, uint32_t k0,
                                         uint32_t k1, uint32_t own, uint32_t workers, uint8_t* kinds,
                                         uint8_t* exponents, uint8_t* data, int threads) {
    const nuq::BaseDelta job{vector, nullptr, size, bits, stochastic != 0, false, k0, k1, own, workers};
    const int64_t blocks = blocks_of(size), portions = portions_of(size), slot = slot_of(bits);
    std::vector<int64_t> bytes(static_cast<size_t>(portions));
#pragma omp parallel for schedule(static) num_threads(nuq::team(portions > 1, threads))
    for (int64_t i = 0; i < portions; ++i) {
        const int64_t first = i * PORTION;
        uint8_t* const to = data + i * slot;
        bytes[size_t(i)] =
            NUQ_CALL(base_delta_encode, job, first, std::min(blocks, first + PORTION), kinds, exponents, to) - to;
    }
    int64_t at = 0;
    for (int64_t i = 0; i < portions; at += bytes[size_t(i++)])
        std::memmove(data + at, data + i * slot, size_t(bytes[size_t(i)]));
    return at;
}

// starts: int64[blocks], of each block in the data, all of which is there.
NUQ_EXPORT void nuq_base_delta_decode(const uint8_t* kinds, const uint8_t* exponents, const int64_t* starts,
                                      const uint8_t* data, int64_t bytes, int bits, float* total, int64_t size,
                                      int accumulate, int threads) {
    const nuq::BaseDelta job{nullptr, total, size, bits, false, accumulate != 0, 0, 0, 0, 1};
    const int64_t blocks = blocks_of(size);
#pragma omp parallel for schedule(static) num_threads(nuq::team(blocks > PORTION, threads))
    for (int64_t block = 0; block < blocks; ++block) {
        const uint8_t* from = data + starts[block];
        const int64_t end = block + 1 < blocks ? starts[block + 1] : bytes;
        // a damaged one may be longer than an encoder's
        uint8_t padded[nuq::DELTA_BLOCK + 2 * nuq::DELTA_SLACK + 1] = {};
        if (end + nuq::DELTA_SLACK > bytes) {
            if (end > starts[block]) std::memcpy(padded, from, size_t(end - starts[block]));
            from = padded;
        }
        NUQ_CALL(base_delta_decode, job, block, kinds[block], exponents[block], from);
    }
}
