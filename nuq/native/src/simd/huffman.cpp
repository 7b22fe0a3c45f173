// Canonical Huffman codes of at most 12 bits in a little-endian bit stream, so that a 64-bit load holds at least four
// codes.
#include "../entropy.h"

#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-slp-vectorize", "no-tree-vectorize")  // its gathers halve the speed of four scalar chains
#endif

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr uint32_t WINDOW = (1u << HUFFMAN_BITS) - 1;

template <typename Code>
size_t encode(const uint32_t* words, const Code* codes, size_t count, uint8_t* out) {
    uint8_t* const begin = out;
    uint64_t buffer = 0;
    unsigned filled = 0;  // bits of the buffer, at most 7 between two groups of four codes
    auto put = [&](Code code) {
        const uint32_t word = words[code];
        buffer |= uint64_t(word & 0xFFFF) << filled;
        filled += word >> 16;
    };
    auto flush = [&] {
        std::memcpy(out, &buffer, 8);
        out += filled >> 3;
        buffer >>= filled & ~7u;
        filled &= 7;
    };
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int k = 0; k < 4; ++k) put(codes[i + k]);
        flush();
    }
    for (; i < count; ++i) {
        put(codes[i]);
        flush();
    }
    if (filled) *out++ = uint8_t(buffer);
    return size_t(out - begin);
}

// At least 57 bits of the stream from bit ``at`` on; zeros behind its end.
inline uint64_t bits_at(const uint8_t* data, size_t size, uint64_t at) {
    const size_t byte = at >> 3;
    uint64_t bits = 0;
    if (byte + 8 <= size) {
        std::memcpy(&bits, data + byte, 8);
    } else {
        for (size_t k = 0; byte + k < size && k < 8; ++k) bits |= uint64_t(data[byte + k]) << (8 * k);
    }
    return bits >> (at & 7);
}

template <typename Code, int PIECES>
bool decode(const uint16_t* windows, const uint8_t* data, size_t size, const uint64_t* begin, Code* codes,
            size_t count) {
    uint64_t at[PIECES];
    for (int k = 0; k < PIECES; ++k) at[k] = 8 * begin[k];
    auto take = [&](int k, size_t i, uint64_t& bits) {
        const uint16_t entry = windows[bits & WINDOW];
        codes[k * count + i] = Code(entry & WINDOW);
        bits >>= entry >> HUFFMAN_BITS;
        at[k] += entry >> HUFFMAN_BITS;
    };
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        uint64_t bits[PIECES];
        for (int k = 0; k < PIECES; ++k) bits[k] = bits_at(data, size, at[k]);
        for (int step = 0; step < 4; ++step)
            for (int k = 0; k < PIECES; ++k) take(k, i + step, bits[k]);  // independent chains, so their waits overlap
    }
    for (; i < count; ++i)
        for (int k = 0; k < PIECES; ++k) {
            uint64_t bits = bits_at(data, size, at[k]);
            take(k, i, bits);
        }
    for (int k = 0; k < PIECES; ++k) {
        if ((at[k] + 7) / 8 != begin[k + 1]) return false;
        if (at[k] % 8 && data[at[k] / 8] >> (at[k] % 8)) return false;  // padding is zero
    }
    return true;
}

template <typename Code>
bool decode(const uint16_t* windows, const uint8_t* data, size_t size, const uint64_t* begin, int pieces, Code* codes,
            size_t count) {
    if (pieces == 4) return decode<Code, 4>(windows, data, size, begin, codes, count);
    bool whole = true;
    for (int k = 0; k < pieces; ++k) whole &= decode<Code, 1>(windows, data, size, begin + k, codes + k * count, count);
    return whole;
}
}  // namespace

size_t huffman_encode(const uint32_t* words, const void* codes, bool wide, size_t count, uint8_t* out) {
    return wide ? encode(words, static_cast<const uint16_t*>(codes), count, out)
                : encode(words, static_cast<const uint8_t*>(codes), count, out);
}

bool huffman_decode(const uint16_t* windows, const uint8_t* data, size_t size, const uint64_t* begin, int pieces,
                    void* codes, bool wide, size_t count) {
    return wide ? decode(windows, data, size, begin, pieces, static_cast<uint16_t*>(codes), count)
                : decode(windows, data, size, begin, pieces, static_cast<uint8_t*>(codes), count);
}
}  // namespace NUQ_ISA
}  // namespace nuq
