// What this processor runs, and which of it was chosen.
#include "isa.h"

namespace {
int supported() {
    int sets = 1 << nuq::BASELINE;
#if defined(__x86_64__)
    __builtin_cpu_init();
#if defined(NUQ_HAS_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("pclmul"))
        sets |= 1 << nuq::AVX2;
#endif
#if defined(NUQ_HAS_AVX512)
    if ((sets >> nuq::AVX2 & 1) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
        sets |= 1 << nuq::AVX512;
#endif
#endif
    return sets;
}

int best() {
    const int sets = supported();
    return sets >> nuq::AVX512 & 1 ? nuq::AVX512 : sets >> nuq::AVX2 & 1 ? nuq::AVX2 : nuq::BASELINE;
}
}  // namespace

int nuq::chosen_isa = best();

NUQ_EXPORT const char* nuq_digest() { return NUQ_DIGEST; }
NUQ_EXPORT int nuq_isas() { return supported(); }
NUQ_EXPORT int nuq_chosen_isa() { return nuq::chosen_isa; }
NUQ_EXPORT int nuq_choose_isa(int set) {
    if (!(supported() >> set & 1)) return 0;
    nuq::chosen_isa = set;
    return 1;
}
