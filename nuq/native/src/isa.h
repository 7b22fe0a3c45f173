// One source, several instruction sets: a file of simd/ is compiled once for each, with NUQ_ISA as its namespace and
// NUQ_ISA_BASELINE, NUQ_ISA_AVX2 or NUQ_ISA_AVX512 defined.  NUQ_DECLARE names its functions in all of them, NUQ_CALL
// calls the one that was chosen when the library was loaded.
#pragma once
#include <cstddef>
#include <cstdint>

#define NUQ_EXPORT extern "C" __attribute__((visibility("default")))

namespace nuq {
enum Isa : int { BASELINE = 0, AVX2 = 1, AVX512 = 2 };
extern int chosen_isa;
}  // namespace nuq

#if defined(NUQ_HAS_AVX512)
#define NUQ_CALL(function, ...)                                                \
    (nuq::chosen_isa == nuq::AVX512 ? nuq::avx512::function(__VA_ARGS__)       \
     : nuq::chosen_isa == nuq::AVX2 ? nuq::avx2::function(__VA_ARGS__)         \
                                    : nuq::baseline::function(__VA_ARGS__))
#elif defined(NUQ_HAS_AVX2)
#define NUQ_CALL(function, ...)                                                \
    (nuq::chosen_isa == nuq::AVX2 ? nuq::avx2::function(__VA_ARGS__) : nuq::baseline::function(__VA_ARGS__))
#else
#define NUQ_CALL(function, ...) nuq::baseline::function(__VA_ARGS__)
#endif

#define NUQ_DECLARE(result, function, ...)                                     \
    namespace nuq { namespace baseline { result function(__VA_ARGS__); }       \
                    namespace avx2 { result function(__VA_ARGS__); }           \
                    namespace avx512 { result function(__VA_ARGS__); } }
