// Numbers of 16 bits as planes of bytes, a block at a time: loops that the compiler turns into vectors.
#include "../planes.h"

#include <algorithm>

namespace nuq {
namespace NUQ_ISA {
int split_planes(const uint16_t* numbers, int count, uint8_t* top, uint8_t* gaps, uint8_t* rests) {
    uint8_t largest = 0, zeros = 0;  // at most PLANE_BLOCK
    for (int i = 0; i < count; ++i) {
        const uint8_t exponent = uint8_t(numbers[i] >> 7);
        gaps[i] = exponent;
        rests[i] = uint8_t((numbers[i] & 0x7F) | (numbers[i] >> 8 & 0x80));
        largest = std::max(largest, exponent);
        zeros = uint8_t(zeros + (exponent == 0));
    }
    for (int i = 0; i < count; ++i) gaps[i] = gaps[i] ? uint8_t(largest - gaps[i]) : ZERO_GAP;
    *top = largest;
    return zeros;
}

void join_planes(const uint8_t* top, const uint8_t* gaps, const uint8_t* rests, int count, uint16_t* numbers) {
    const uint16_t largest = *top;
    for (int i = 0; i < count; ++i) {
        const uint16_t gap = gaps[i], rest = rests[i];
        const uint16_t mask = gap == ZERO_GAP ? 0 : 0xFF;  // a choice between numbers would be no vector
        const uint16_t exponent = uint16_t(largest - gap) & mask;
        numbers[i] = uint16_t(exponent << 7 | (rest & 0x7F) | (rest & 0x80) << 8);
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
