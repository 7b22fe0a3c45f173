// The moments of a mixture over many intervals, shared among a few threads.
#ifdef _OPENMP
#include <omp.h>
#endif

#include "levels.h"

namespace {
constexpr int64_t SHARE = 248;    // intervals of one piece of work
constexpr int64_t WORTH = 40000;  // edges times components below which a second thread costs more than it brings
}  // namespace

NUQ_EXPORT void nuq_mixture_moments(const nuq::Normals* law, const double* edges, int64_t intervals, double* moments) {
    const int64_t pieces = (intervals + SHARE - 1) / SHARE;
#ifdef _OPENMP
    const int most = omp_get_max_threads() < 4 ? omp_get_max_threads() : 4;
    const int threads = intervals * law->count < WORTH ? 1 : most;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
#endif
    for (int64_t piece = 0; piece < pieces; piece++) {
        const int64_t first = piece * SHARE, last = first + SHARE < intervals ? first + SHARE : intervals;
        NUQ_CALL(mixture_moments, *law, edges, first, last, moments, intervals);
    }
}
