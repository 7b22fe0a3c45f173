// Sums of logarithms, read from the bits of the numbers: what nuq/kernels/log2_mean.py specifies.
#include "../log2_mean.h"

#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
void log_sum(const float* x, int64_t size, const int32_t* fractions, int64_t& sum, int64_t& count) {
    // A logarithm is within 2^23 of zero, so 128 of them stay within 2^30.
    constexpr int64_t DRAIN = 128 * W;
    for (int64_t first = 0; first < size; first += DRAIN) {
        I part{}, nonzeros{};
        for (int64_t i = first; i < size && i < first + DRAIN; i += W) {
            const F value = i + W <= size ? load<F>(x + i) : load_first(x + i, size - i);
            prefetch(x + i + AHEAD);
            const I bits = (I)((U)value & 0x7FFFFFFF), mask = bits != 0;
            const U read = (U)larger(bits, splat(int32_t(0x00800000)));
            const I fraction = (I)(U)gathered(reinterpret_cast<const float*>(fractions), read >> 15 & 0xFF);
            part += ((((I)(read >> 23) - 127) << 16) + fraction) & mask;
            nonzeros -= mask;
        }
        for (int lane = 0; lane < W; ++lane) sum += part[lane], count += nonzeros[lane];
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
