// Shorter floating-point codes by random rounding, a vector at a time: what nuq/kernels/casts.py specifies.
#include "../casts.h"

#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
inline U where_less(U a, uint32_t b, U yes, U no) {  // below 2^31
    const U mask = (U)((I)a < (I)splat(b));
    return (yes & mask) | (no & ~mask);
}

// The h of every coordinate; of negative ones that are among others turned round: sizes grow where numbers fall.
template <bool ALIGNED>
inline U drawn(const Cast& job, const Hash& noise, F x, uint32_t c) {
    return noise.at<ALIGNED>(c) ^ ((U)((I)x >> 31) & (job.workers > 1 ? 0xFFFFFFFF : 0));
}

struct Bfloat16 {
    Cast job;
    Hash noise;
    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const U bits = (U)x, rounded = (bits & 0x7FFFFFFF) + (drawn<ALIGNED>(job, noise, x, c) >> 16);
        return (where_less(rounded, job.most << 16 | 0xFFFF, rounded, splat(job.most << 16)) >> 16) |
               (bits >> 16 & 0x8000);
    }
};

struct Float16 {
    Cast job;
    Hash noise;
    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const U hash = drawn<ALIGNED>(job, noise, x, c), sign = (U)x >> 16 & 0x8000;
        const F y = (F)((U)(x * job.scale) & 0x7FFFFFFF);
        const U normal = ((U)y + (hash >> 19) - (112u << 23)) >> 13;
        const F units = at_most(y, splat(0x1p-14f)) * 0x1p24f;  // of the smallest number
        const I whole = truncate(units);
        const U small = add_where_below((U)whole, to_float(hash >> 8) * 0x1p-24f, units - to_float(whole));
        const U code = where_less((U)y, 113u << 23, small, normal);
        return where_less(code, job.most, code, splat(job.most)) | sign;
    }
};

struct Natural {
    Cast job;
    Hash noise;
    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        const U hash = drawn<ALIGNED>(job, noise, x, c), bits = (U)x, size = bits & 0x7FFFFFFF;
        const U power = ((size + (hash >> 9)) >> 23) - (job.least - 1);
        const U below = add_where_below(U{}, to_float(hash >> 8) * 0x1p-24f, (F)size * job.scale);
        return where_less(size, job.least << 23, below, power) | (bits >> 24 & 0x80);
    }
};

template <int MANTISSA>
struct Float8 {
    Cast job;
    Hash noise;
    template <bool ALIGNED>
    U codes(F x, uint32_t c) const {
        constexpr int SHIFT = 23 - MANTISSA;
        constexpr uint32_t LEAST = MANTISSA == 2 ? 113 : 121;  // the exponent field of the smallest normal number
        const U hash = drawn<ALIGNED>(job, noise, x, c), size = (U)x & 0x7FFFFFFF;
        const U normal = (size + (hash >> (32 - SHIFT)) - ((LEAST - 1) << 23)) >> SHIFT;
        const F units =
            at_most((F)size, splat(MANTISSA == 2 ? 0x1p-14f : 0x1p-6f)) * (MANTISSA == 2 ? 0x1p16f : 0x1p9f);
        const I whole = truncate(units);
        const U small = add_where_below((U)whole, to_float(hash >> 8) * 0x1p-24f, units - to_float(whole));
        const U code = where_less(size, LEAST << 23, small, normal);
        return where_less(code, job.most, code, splat(job.most)) | ((U)x >> 24 & 0x80);
    }
};

template <class Rounding, class Code>
void run(const Rounding& rounding, int64_t first, int64_t last) {
    Code* to = static_cast<Code*>(rounding.job.codes);
    const float* x = rounding.job.vector;
    int64_t c = first;
    for (; c + W <= last; c += W) {
        prefetch(x + c + AHEAD);
        store_codes(to + c, rounding.template codes<true>(load<F>(x + c), uint32_t(c)));
    }
    if (c < last) {
        Code room[W];
        store_codes(room, rounding.template codes<true>(load_first(x + c, last - c), uint32_t(c)));
        std::memcpy(to + c, room, size_t(last - c) * sizeof(Code));
    }
}
}  // namespace

void cast(const Cast& job, int64_t first, int64_t last) {
    const Hash noise(job.k0, job.k1, job.own, job.workers);
    if (job.format == BFLOAT16_CODE) run<Bfloat16, uint16_t>({job, noise}, first, last);
    else if (job.format == FLOAT16_CODE) run<Float16, uint16_t>({job, noise}, first, last);
    else if (job.format == NATURAL_CODE) run<Natural, uint8_t>({job, noise}, first, last);
    else if (job.least == 2) run<Float8<2>, uint8_t>({job, noise}, first, last);
    else run<Float8<3>, uint8_t>({job, noise}, first, last);
}
}  // namespace NUQ_ISA
}  // namespace nuq
