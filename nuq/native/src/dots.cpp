// Entry point of simd/dots.cpp.
#include "isa.h"

NUQ_DECLARE(void, dots, const float*, const float*, int64_t, int64_t, int64_t, double*)

NUQ_EXPORT void nuq_bucket_dots(const float* a, const float* b, int64_t size, int64_t bucket, double* sums,
                                int threads) {
    const int64_t buckets = (size + bucket - 1) / bucket;
#pragma omp parallel for num_threads(threads) if (threads > 1 && size > (1 << 16))
    for (int64_t number = 0; number < buckets; ++number) NUQ_CALL(dots, a, b, size, bucket, number, sums);
}
