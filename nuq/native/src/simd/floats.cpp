// Floating-point numbers of any width as float32, and whether all are finite, in one pass; the average of errors.
#include "../floats.h"

#include <algorithm>
#include <cmath>

#include "widen.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int64_t PIECE = 1024;  // numbers that wait in L1

inline int size_of(int format) { return format == FLOAT32_NUMBER ? 4 : format <= FLOAT16_NUMBER ? 2 : 1; }

// e5m2 is float16's upper byte; e4m3 has float16's layout too, 2^8 times smaller, but for its one NaN.
inline void widen_float8(const uint8_t* from, int64_t count, int format, float* to) {
    uint16_t halves[PIECE];
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t byte = from[i], size = byte & 0x7F;
        halves[i] =
            uint16_t(format == E5M2_NUMBER ? byte << 8 : (byte & 0x80) << 8 | (size == 0x7F ? 0x7C00 : size << 7));
    }
    widen_float16(halves, count, to);
}

// Whether all are finite, times the factor: of what is not, the difference from itself is not a number.
template <bool SCALED, bool ACCUMULATE>
inline bool write(const uint8_t* from, int64_t count, float factor, float* total) {
    U bad = {};
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        F value = load<F>(from + 4 * i);
        if (SCALED) value = value * factor;
        bad |= (U)(value - value);
        store(total + i, ACCUMULATE ? load<F>(total + i) + value : value);
    }
    uint32_t found = 0;
    for (int lane = 0; lane < W; ++lane) found |= bad[lane];
    for (; i < count; ++i) {
        float value;
        std::memcpy(&value, from + 4 * i, sizeof value);
        value *= factor;
        found |= uint32_t(!(value - value == 0.0f));
        total[i] = ACCUMULATE ? total[i] + value : value;
    }
    return !found;
}
}  // namespace

bool read_floats(const Floats& job, int64_t first, int64_t last) {
    float room[PIECE];
    const float factor = job.format == E4M3_NUMBER ? job.factor * 256 : job.factor;
    bool finite = true;
    for (int64_t c = first; c < last; c += PIECE) {
        const int64_t count = std::min(PIECE, last - c);
        const uint8_t* from = job.numbers + c * size_of(job.format);
        if (job.format != FLOAT32_NUMBER) {
            if (size_of(job.format) == 1) {
                widen_float8(from, count, job.format, room);
            } else {
                uint16_t halves[PIECE];
                std::memcpy(halves, from, size_t(count) * sizeof *halves);
                job.format == BFLOAT16_NUMBER ? widen_bfloat16(halves, count, room)
                                              : widen_float16(halves, count, room);
            }
            from = reinterpret_cast<const uint8_t*>(room);
        }
        const auto run = factor == 1 ? (job.accumulate ? write<false, true> : write<false, false>)
                                     : (job.accumulate ? write<true, true> : write<true, false>);
        finite &= run(from, count, factor, job.total + c);
    }
    return finite;
}

// Rounded as PyTorch's lerp_ is: one fused multiplication and addition, from the nearer end.
void average_errors(const Errors& job, int64_t first, int64_t last) {
    const bool near = job.weight < 0.5f;
    const float weight = near ? job.weight : job.weight - 1;
    for (int64_t i = first; i < last; ++i) {
        const float kept = job.kept[i], error = job.wanted[i] - job.sent[i] * job.factor;
        job.kept[i] = std::fma(weight, error - kept, near ? kept : error);
        job.wanted[i] = kept;
    }
}
}  // namespace NUQ_ISA
}  // namespace nuq
