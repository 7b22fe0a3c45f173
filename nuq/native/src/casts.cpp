// The entry point of simd/casts.cpp: how a vector is cut among the threads.  The cuts change no bit.
#include "casts.h"

#include <algorithm>

#include "threads.h"

constexpr int64_t PORTION = 1 << 15;  // coordinates that a thread takes at a time

NUQ_EXPORT void nuq_cast(const float* vector, int64_t size, int format, void* codes, float scale, uint32_t most,
                         uint32_t least, uint32_t k0, uint32_t k1, uint32_t own, uint32_t workers, int threads) {
    const nuq::Cast job{vector, format, codes, scale, most, least, k0, k1, own, workers};
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += PORTION) NUQ_CALL(cast, job, first, std::min(size, first + PORTION));
}
