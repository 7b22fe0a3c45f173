// How many threads a loop gets.
#pragma once
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace nuq {
// ``asked`` of them, or as many as OpenMP would take (OMP_NUM_THREADS, else all cores) for 0; one where there is little
// to do.
inline int team(bool worth_it, int asked) {
#if defined(_OPENMP)
    return !worth_it ? 1 : asked > 0 ? asked : omp_get_max_threads();
#else
    (void)worth_it, (void)asked;
    return 1;
#endif
}
}  // namespace nuq
