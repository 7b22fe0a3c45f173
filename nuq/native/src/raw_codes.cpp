// Codes in fixed width (1 to 9 bits, a little-endian bit stream), or five ternary ones to a byte: what entropy coding
// falls back on.  ``bits`` is 0 for ternary, as in nuq/kernels/bit_packing.py.
#include "isa.h"
#include "threads.h"

#include <algorithm>
#include <cstring>

namespace {
constexpr int64_t BLOCK = 5 << 15;  // codes that a thread takes at a time: whole bytes in every width

template <typename Code>
void pack_block(const Code* codes, uint64_t count, int bits, uint8_t* out) {
    if (bits == 0) {
        for (uint64_t i = 0; i < count; i += 5) {
            unsigned byte = 0;
            for (uint64_t k = std::min<uint64_t>(5, count - i); k-- > 0;) byte = 3 * byte + codes[i + k];
            *out++ = uint8_t(byte);
        }
        return;
    }
    uint64_t buffer = 0;
    int filled = 0;
    for (uint64_t i = 0; i < count; ++i) {
        buffer |= uint64_t(codes[i]) << filled;
        filled += bits;
        if (filled >= 32) {
            std::memcpy(out, &buffer, 4);
            out += 4;
            buffer >>= 32;
            filled -= 32;
        }
    }
    for (; filled > 0; filled -= 8, buffer >>= 8) *out++ = uint8_t(buffer);
}

// Whether every code is below num_symbols.
template <typename Code>
bool unpack_block(const uint8_t* data, uint64_t size, uint64_t count, int bits, int num_symbols, Code* codes) {
    unsigned largest = 0;
    if (bits == 0) {
        for (uint64_t i = 0; i < count; i += 5) {
            unsigned byte = *data++;
            largest = std::max(largest, byte > 242 ? 3u : 0u);
            for (uint64_t k = 0; k < std::min<uint64_t>(5, count - i); ++k, byte /= 3) codes[i + k] = Code(byte % 3);
        }
        return largest < 3;
    }
    const uint32_t mask = (1u << bits) - 1;
    uint64_t i = 0;
    for (; i < count && (i * bits >> 3) + 4 <= size; ++i) {
        uint32_t word;
        std::memcpy(&word, data + (i * bits >> 3), 4);
        const uint32_t code = word >> (i * bits & 7) & mask;
        largest = std::max(largest, code);
        codes[i] = Code(code);
    }
    for (; i < count; ++i) {  // the last ones, without a read behind the end
        uint32_t word = 0;
        for (uint64_t at = i * bits >> 3, k = 0; k < 4 && at + k < size; ++k) word |= uint32_t(data[at + k]) << (8 * k);
        const uint32_t code = word >> (i * bits & 7) & mask;
        largest = std::max(largest, code);
        codes[i] = Code(code);
    }
    return largest < unsigned(num_symbols);
}

uint64_t bytes_before(uint64_t code, int bits) { return bits ? code * bits / 8 : code / 5; }
}  // namespace

NUQ_EXPORT void nuq_pack(const void* codes, int wide, uint64_t count, int bits, uint8_t* out, int threads) {
    const int64_t blocks = int64_t((count + BLOCK - 1) / BLOCK);
#pragma omp parallel for schedule(static) num_threads(nuq::team(blocks > 1, threads))
    for (int64_t block = 0; block < blocks; ++block) {
        const uint64_t first = block * BLOCK, size = std::min<uint64_t>(BLOCK, count - first);
        uint8_t* begin = out + bytes_before(first, bits);
        if (wide) pack_block(static_cast<const uint16_t*>(codes) + first, size, bits, begin);
        else pack_block(static_cast<const uint8_t*>(codes) + first, size, bits, begin);
    }
}

// ``size``: the bytes of so many codes.  0 where a code is no symbol.
NUQ_EXPORT int nuq_unpack(const uint8_t* data, uint64_t size, uint64_t count, int bits, int num_symbols, int wide,
                          void* codes, int threads) {
    int legal = 1;
    const int64_t blocks = int64_t((count + BLOCK - 1) / BLOCK);
#pragma omp parallel for schedule(static) reduction(& : legal) num_threads(nuq::team(blocks > 1, threads))
    for (int64_t block = 0; block < blocks; ++block) {
        const uint64_t first = block * BLOCK, num = std::min<uint64_t>(BLOCK, count - first),
                       begin = bytes_before(first, bits);
        legal &= wide ? unpack_block(data + begin, size - begin, num, bits, num_symbols,
                                     static_cast<uint16_t*>(codes) + first)
                      : unpack_block(data + begin, size - begin, num, bits, num_symbols,
                                     static_cast<uint8_t*>(codes) + first);
    }
    return legal;
}
