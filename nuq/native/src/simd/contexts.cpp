// The leading bits of every coordinate's random number: what an entropy coder is told of the dither.
#include "../hash.h"
#include "../isa.h"

NUQ_DECLARE(void, leading_bits, int64_t, int64_t, uint32_t, uint32_t, int, uint8_t*)

void nuq::NUQ_ISA::leading_bits(int64_t first, int64_t last, uint32_t k0, uint32_t k1, int count, uint8_t* to) {
    for (int64_t i = first; i < last; ++i) {  // step 6 of the specification
        const uint32_t x = random_number(uint32_t(i), k0, k1);
        to[i] = uint8_t(x >> (32 - count));
    }
}
