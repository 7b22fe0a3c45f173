// The entry points of simd/planes.cpp: how numbers are cut among the threads.  The cuts change no bit.
#include "planes.h"

#include <algorithm>

#include "threads.h"

namespace {
constexpr int64_t PORTION = 1 << 15;  // numbers that are worth a second thread

int count_of(int64_t size, int64_t first) { return int(std::min(nuq::PLANE_BLOCK, size - first)); }
}  // namespace

// tops: uint8[blocks]; gaps, rests: uint8[size].  Returns how many exponents are 0.
NUQ_EXPORT int64_t nuq_split_planes(const uint16_t* numbers, int64_t size, uint8_t* tops, uint8_t* gaps,
                                    uint8_t* rests, int threads) {
    int64_t zeros = 0;
#pragma omp parallel for schedule(static) reduction(+ : zeros) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += nuq::PLANE_BLOCK)
        zeros += NUQ_CALL(split_planes, numbers + first, count_of(size, first), tops + first / nuq::PLANE_BLOCK,
                          gaps + first, rests + first);
    return zeros;
}

NUQ_EXPORT void nuq_join_planes(const uint8_t* tops, const uint8_t* gaps, const uint8_t* rests, int64_t size,
                                uint16_t* numbers, int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += nuq::PLANE_BLOCK)
        NUQ_CALL(join_planes, tops + first / nuq::PLANE_BLOCK, gaps + first, rests + first, count_of(size, first),
                 numbers + first);
}
