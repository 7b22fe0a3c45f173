// The input in float32 (step 1), a piece at a time.
#pragma once
#include "../quantize.h"
#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
inline void widen_bfloat16(const uint16_t* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = uint32_t(from[i]) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
}

// By integer steps that any vector unit has.  Exponent 31 (infinite, not a number) moves to 255; exponent 0 (denormal)
// is read with a 1 in front, which a subtraction then takes away.
inline void widen_float16(const uint16_t* from, int64_t count, float* to) {
    int64_t i = 0;
#if defined(NUQ_ISA_AVX512)
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
#elif defined(NUQ_ISA_AVX2)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < count; ++i) {
        const uint32_t half = from[i], exponent = half & 0x7C00;
        uint32_t bits = ((half & 0x7FFF) << 13) + (112u << 23);
        bits += exponent == 0x7C00 ? 112u << 23 : exponent == 0 ? 1u << 23 : 0;
        float value;
        std::memcpy(&value, &bits, sizeof bits);
        value -= exponent == 0 ? 0x1p-14f : 0.0f;
        std::memcpy(&bits, &value, sizeof bits);
        bits |= (half & 0x8000) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
}

// Coordinates [first, first + count) of the vector, in ``room`` unless they are float32 already.
inline const float* widened(const void* vector, int dtype, int64_t first, int64_t count, float* room) {
    if (dtype == FLOAT32) return static_cast<const float*>(vector) + first;
    const uint16_t* from = static_cast<const uint16_t*>(vector) + first;
    if (dtype == BFLOAT16)
        widen_bfloat16(from, count, room);
    else
        widen_float16(from, count, room);
    return room;
}
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
