// What the entropy coders share: the tables of a static rANS model and of a canonical Huffman code.  The format stands
// in nuq/coding/entropy.py; nuq/coding/entropy_reference.py is the same in NumPy.  Codes are uint8 for up to 256
// symbols, else uint16.
#pragma once
#include "isa.h"

#include <vector>

namespace nuq {
// states live in [2^15, 2^31): signed comparisons do, and reciprocals fit 32 bits
constexpr uint32_t RANS_LOW = 1u << 15;
constexpr int MAX_LANES = 32;

// x / f = (x * reciprocal >> 32) >> shift for all x < 2^31; for f = 1 that is x - 1, and bias mends it
struct RansEncodeEntry {
    uint32_t reciprocal, bias, limit;
    uint16_t complement, shift;
};

struct RansModel {
    int bits, lanes, num_symbols, num_contexts;
    bool wide_codes;    // uint16 codes
    bool wide_entries;  // more than 12 bits or 256 symbols: an entry of 32 bits holds no symbol

    // Encoding, [context][symbol]; ``packed`` is f - 1 and the start of the symbol's slots << 16.
    std::vector<RansEncodeEntry> entries;
    std::vector<uint32_t> packed;
    // Decoding, [context][slot]: f - 1, then the slot's place among those of its symbol (<< 12, or << 16 where wide),
    // then the symbol << 24 (or in ``symbols``, with one entry more, because gathers read 32 bits).
    std::vector<uint32_t> slots;
    std::vector<uint16_t> symbols;
};

constexpr int HUFFMAN_BITS = 12;  // the longest code
}  // namespace nuq

// ``codes`` begins at the chunk, as do ``contexts`` (null where there is one).  Encoding writes backwards from ``end``
// and returns the number of bytes; decoding returns whether the bytes are a whole chunk.
NUQ_DECLARE(size_t, rans_encode, const RansModel& model, const void* codes, const uint8_t* contexts, size_t count,
            uint8_t* end)
NUQ_DECLARE(bool, rans_decode, const RansModel& model, const uint8_t* data, size_t size, void* codes,
            const uint8_t* contexts, size_t count)

// ``words``: [num_symbols] the code, lowest bit first, and its length << 16.  Returns the number of bytes; ``out`` has
// room for 8 more than they can be.
NUQ_DECLARE(size_t, huffman_encode, const uint32_t* words, const void* codes, bool wide, size_t count, uint8_t* out)
// ``windows``: [2^12] the symbol that the next 12 bits begin with, and its length << 12.  ``pieces`` (4 at most) of
// ``count`` codes each, the k-th in bytes ``begin[k] .. begin[k + 1]`` of ``data``.
NUQ_DECLARE(bool, huffman_decode, const uint16_t* windows, const uint8_t* data, size_t size, const uint64_t* begin,
            int pieces, void* codes, bool wide, size_t count)
