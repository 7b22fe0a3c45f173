// The entry points of simd/floats.cpp: how a vector is cut among the threads.  The cuts change no bit.
#include "floats.h"

#include <algorithm>
#include <atomic>

#include "threads.h"

constexpr int64_t PORTION = 1 << 15;  // coordinates that a thread takes at a time

// 0, or 1 where a number is not finite: then the total holds nothing of use.
NUQ_EXPORT int nuq_read_floats(const uint8_t* numbers, int64_t size, int format, float factor, float* total,
                               int accumulate, int threads) {
    const nuq::Floats job{numbers, format, factor, total, accumulate != 0};
    std::atomic<bool> damaged{false};
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += PORTION)
        if (!NUQ_CALL(read_floats, job, first, std::min(size, first + PORTION))) damaged = true;
    return damaged;
}

// The moving average of errors (nuq/compressors/feedback.py): ``kept`` moves by ``weight`` towards wanted - factor sent,
// and ``wanted`` becomes what it was.
NUQ_EXPORT void nuq_average_errors(float* wanted, const float* sent, float factor, float weight, float* kept,
                                   int64_t size, int threads) {
    const nuq::Errors job{wanted, sent, factor, weight, kept};
#pragma omp parallel for schedule(static) num_threads(nuq::team(size > PORTION, threads))
    for (int64_t first = 0; first < size; first += PORTION)
        NUQ_CALL(average_errors, job, first, std::min(size, first + PORTION));
}
