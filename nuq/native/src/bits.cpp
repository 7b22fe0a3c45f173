// Bit streams of numbers of various widths, and bitmaps of indices: the pieces that nuq/coding/index_coding.py codes
// positions with.
#include <cstring>

#include "isa.h"

// Sets bit indices[j] of ``to``, which is zero.
NUQ_EXPORT void nuq_set_bits(const int64_t* indices, int64_t count, uint8_t* to) {
    for (int64_t j = 0; j < count; ++j) to[indices[j] >> 3] = uint8_t(to[indices[j] >> 3] | 1 << (indices[j] & 7));
}

// The indices of the bits that are set, ascending, into ``to`` (room for ``most``); their number, or -1 where it is
// above ``most``.
NUQ_EXPORT int64_t nuq_find_bits(const uint8_t* data, int64_t size, int64_t most, int64_t* to) {
    int64_t found = 0;
    for (int64_t begin = 0; begin < size; begin += 8) {
        uint64_t word = 0;
        // little-endian, as everything that travels
        std::memcpy(&word, data + begin, size_t(size - begin < 8 ? size - begin : 8));
        for (; word; word &= word - 1) {
            if (found == most) return -1;
            to[found++] = 8 * begin + __builtin_ctzll(word);
        }
    }
    return found;
}

// values[j] in widths[j] (0 .. 31) bits, one after another; to: 8 bytes more than they take.
NUQ_EXPORT void nuq_pack_widths(const uint32_t* values, const uint8_t* widths, int64_t count, uint8_t* to) {
    uint64_t held = 0;
    int filled = 0;
    for (int64_t j = 0; j < count; ++j) {
        held |= uint64_t(values[j]) << filled;
        filled += widths[j];
        std::memcpy(to, &held, sizeof held);
        const int whole = filled >> 3;
        to += whole;
        held >>= 8 * whole;  // filled is at most 7 + 31: never all of it
        filled &= 7;
    }
}

// The inverse; data: 8 bytes more than are read.
NUQ_EXPORT void nuq_unpack_widths(const uint8_t* data, const uint8_t* widths, int64_t count, uint32_t* values) {
    int64_t bit = 0;
    for (int64_t j = 0; j < count; ++j) {
        uint64_t word;
        std::memcpy(&word, data + (bit >> 3), sizeof word);
        values[j] = uint32_t(word >> (bit & 7) & ((1ull << widths[j]) - 1));
        bit += widths[j];
    }
}
