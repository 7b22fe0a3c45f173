// Entropy coding, a chunk or piece at a time on all threads.  nuq/native/entropy.py checks every size and table before
// it calls; codes and contexts are checked here, while they are counted.  ``threads`` is 0 where OpenMP is to choose.
#include "entropy.h"
#include "threads.h"

#include <algorithm>
#include <cstring>

namespace {
using nuq::RansModel;

constexpr int64_t BLOCK = 1 << 18;  // codes counted by one thread at a time: below 2^32, so that the counters are small

const uint8_t* at_code(const void* codes, bool wide, uint64_t i) {
    return static_cast<const uint8_t*>(codes) + (wide ? 2 * i : i);
}
uint8_t* at_code(void* codes, bool wide, uint64_t i) { return static_cast<uint8_t*>(codes) + (wide ? 2 * i : i); }

template <typename Code>
bool count_block(const Code* codes, const uint8_t* contexts, uint64_t count, int num_contexts, int num_symbols,
                 uint32_t* counts) {
    constexpr int SYMBOLS = 512, COPIES = 4;  // equal neighbours would wait for each other's counter
    if (!contexts) {
        uint32_t copies[COPIES][SYMBOLS] = {};
        unsigned seen = 0;
        uint64_t i = 0;
        for (; i + COPIES <= count; i += COPIES)
            for (int k = 0; k < COPIES; ++k) {
                seen |= codes[i + k];
                ++copies[k][codes[i + k] % SYMBOLS];
            }
        for (; i < count; ++i) {
            seen |= codes[i];
            ++copies[0][codes[i] % SYMBOLS];
        }
        if (seen >= SYMBOLS) return false;
        for (int symbol = 0; symbol < SYMBOLS; ++symbol) {
            const uint32_t sum = copies[0][symbol] + copies[1][symbol] + copies[2][symbol] + copies[3][symbol];
            if (symbol < num_symbols) counts[symbol] = sum;
            else if (sum) return false;
        }
        return true;
    }
    for (uint64_t i = 0; i < count; ++i) {
        if (codes[i] >= num_symbols || contexts[i] >= num_contexts) return false;
        ++counts[contexts[i] * num_symbols + codes[i]];
    }
    return true;
}

RansModel model_of(int bits, int lanes, int num_symbols, int num_contexts, bool wide) {
    RansModel model;
    model.bits = bits;
    model.lanes = lanes;
    model.num_symbols = num_symbols;
    model.num_contexts = num_contexts;
    model.wide_codes = wide;
    model.wide_entries = wide || bits > 12;
    return model;
}

void make_encoder(RansModel& model, const uint32_t* frequencies) {
    const uint32_t total = 1u << model.bits;
    for (int context = 0; context < model.num_contexts; ++context) {
        uint32_t start = 0;
        for (int symbol = 0; symbol < model.num_symbols; ++symbol) {
            const uint32_t f = *frequencies++;
            nuq::RansEncodeEntry entry{};
            if (f) {
                uint32_t log = 0;
                while ((1u << log) < f) ++log;
                entry.reciprocal = f == 1 ? ~0u : uint32_t(((uint64_t(1) << (31 + log)) + f - 1) / f);
                entry.shift = uint16_t(f == 1 ? 0 : log - 1);
                entry.bias = f == 1 ? start + total - 1 : start;
                entry.complement = uint16_t(total - f);
                entry.limit = f << (31 - model.bits);
            }
            model.entries.push_back(entry);
            model.packed.push_back(f ? (f - 1) | start << 16 : 0);
            start += f;
        }
    }
}

void make_decoder(RansModel& model, const uint32_t* frequencies) {
    const size_t total = size_t(1) << model.bits;
    model.slots.resize(model.num_contexts * total);
    if (model.wide_entries) model.symbols.resize(model.num_contexts * total + 1);
    for (int context = 0; context < model.num_contexts; ++context) {
        size_t slot = context * total;
        for (uint32_t symbol = 0; symbol < uint32_t(model.num_symbols); ++symbol) {
            const uint32_t f = *frequencies++;
            for (uint32_t place = 0; place < f; ++place, ++slot) {
                model.slots[slot] = model.wide_entries ? (f - 1) | place << 16 : (f - 1) | place << 12 | symbol << 24;
                if (model.wide_entries) model.symbols[slot] = uint16_t(symbol);
            }
        }
    }
}
}  // namespace

// counts[num_contexts][num_symbols], zeroed by the caller; 0 where a code or a context is too large.
NUQ_EXPORT int nuq_entropy_count(const void* codes, int wide, uint64_t count, const uint8_t* contexts, int num_contexts,
                                 int num_symbols, int64_t* counts, int threads) {
    int legal = 1;
    const int64_t blocks = int64_t((count + BLOCK - 1) / BLOCK);
#pragma omp parallel for schedule(dynamic) reduction(& : legal) num_threads(nuq::team(blocks > 1, threads))
    for (int64_t block = 0; block < blocks; ++block) {
        const uint64_t first = block * BLOCK, size = std::min<uint64_t>(BLOCK, count - first);
        std::vector<uint32_t> mine(size_t(num_contexts) * num_symbols);
        const uint8_t* beside = contexts ? contexts + first : nullptr;
        legal &= wide ? count_block(static_cast<const uint16_t*>(codes) + first, beside, size, num_contexts,
                                    num_symbols, mine.data())
                      : count_block(static_cast<const uint8_t*>(codes) + first, beside, size, num_contexts, num_symbols,
                                    mine.data());
#pragma omp critical(nuq_entropy_count)
        for (size_t k = 0; k < mine.size(); ++k) counts[k] += mine[k];
    }
    return legal;
}

// Chunk k ends at scratch + (k + 1) * stride and takes sizes[k] bytes.
NUQ_EXPORT void nuq_rans_encode(const void* codes, int wide, uint64_t count, const uint8_t* contexts, int num_contexts,
                                int num_symbols, const uint32_t* frequencies, int bits, int lanes, uint64_t chunk,
                                uint8_t* scratch, uint64_t stride, uint64_t* sizes, int threads) {
    RansModel model = model_of(bits, lanes, num_symbols, num_contexts, wide);
    make_encoder(model, frequencies);
    const int64_t chunks = int64_t((count + chunk - 1) / chunk);
#pragma omp parallel for schedule(dynamic) num_threads(nuq::team(chunks > 1, threads))
    for (int64_t k = 0; k < chunks; ++k) {
        const uint64_t first = k * chunk, size = std::min(chunk, count - first);
        sizes[k] = NUQ_CALL(rans_encode, model, at_code(codes, wide, first), contexts ? contexts + first : nullptr,
                            size, scratch + (k + 1) * stride);
    }
}

// Chunk k in bytes begin[k] .. begin[k + 1] of data; 0 where one is damaged.
NUQ_EXPORT int nuq_rans_decode(const uint8_t* data, const uint64_t* begin, uint64_t count, int wide,
                               const uint8_t* contexts, int num_contexts, int num_symbols, const uint32_t* frequencies,
                               int bits, int lanes, uint64_t chunk, void* codes, int threads) {
    RansModel model = model_of(bits, lanes, num_symbols, num_contexts, wide);
    make_decoder(model, frequencies);
    int whole = 1;
    const int64_t chunks = int64_t((count + chunk - 1) / chunk);
#pragma omp parallel for schedule(dynamic) reduction(& : whole) num_threads(nuq::team(chunks > 1, threads))
    for (int64_t k = 0; k < chunks; ++k) {
        const uint64_t first = k * chunk, size = std::min(chunk, count - first);
        whole &= NUQ_CALL(rans_decode, model, data + begin[k], begin[k + 1] - begin[k], at_code(codes, wide, first),
                          contexts ? contexts + first : nullptr, size);
    }
    return whole;
}

// Piece k begins at scratch + k * stride and takes sizes[k] bytes.
NUQ_EXPORT void nuq_huffman_encode(const void* codes, int wide, uint64_t count, const uint32_t* words, uint64_t piece,
                                   uint8_t* scratch, uint64_t stride, uint64_t* sizes, int threads) {
    const int64_t pieces = int64_t((count + piece - 1) / piece);
#pragma omp parallel for schedule(dynamic, 16) num_threads(nuq::team(pieces > 16, threads))
    for (int64_t k = 0; k < pieces; ++k) {
        const uint64_t first = k * piece;
        sizes[k] = NUQ_CALL(huffman_encode, words, at_code(codes, wide, first), wide, std::min(piece, count - first),
                            scratch + k * stride);
    }
}

// Piece k in bytes begin[k] .. begin[k + 1] of data; 0 where one is damaged.
NUQ_EXPORT int nuq_huffman_decode(const uint8_t* data, uint64_t size, const uint64_t* begin, uint64_t count, int wide,
                                  const uint16_t* windows, uint64_t piece, void* codes, int threads) {
    int whole = 1;
    const int64_t full = int64_t(count / piece), groups = (full + 3) / 4;
#pragma omp parallel for schedule(dynamic) reduction(& : whole) num_threads(nuq::team(groups > 4, threads))
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t k = 4 * group;
        whole &= NUQ_CALL(huffman_decode, windows, data, size, begin + k, int(std::min<int64_t>(4, full - k)),
                          at_code(codes, wide, k * piece), wide, piece);
    }
    if (count % piece)
        whole &= NUQ_CALL(huffman_decode, windows, data, size, begin + full, 1, at_code(codes, wide, full * piece),
                          wide, count % piece);
    return whole;
}

// The chunks of a scratch memory one behind the other; ``at_end``: each at the end of its share, else at the beginning.
NUQ_EXPORT void nuq_entropy_join(const uint8_t* scratch, uint64_t stride, int at_end, const uint64_t* begin,
                                 int64_t chunks, uint8_t* out, int threads) {
#pragma omp parallel for schedule(static) num_threads(nuq::team(begin[chunks] > (1 << 20), threads))
    for (int64_t k = 0; k < chunks; ++k) {
        const uint64_t size = begin[k + 1] - begin[k];
        std::memcpy(out + begin[k], scratch + (at_end ? (k + 1) * stride - size : k * stride), size);
    }
}
