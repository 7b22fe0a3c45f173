// CRC-32 of zlib (reflected polynomial 0xEDB88320).  Baseline: slicing by 8.  Otherwise 128 bytes at a time by
// carry-less multiplication: a 128-bit word is congruent to itself moved n bits on, i.e. multiplied by x^n mod P, so
// the words of one block are moved onto those of the next (Gopal et al., "Fast CRC computation using PCLMULQDQ", Intel
// 2009).
#include "../isa.h"

#if defined(__PCLMUL__)
#include <immintrin.h>
#endif

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr uint32_t POLYNOMIAL = 0xEDB88320u;

constexpr uint32_t times_x(uint32_t value) { return (value >> 1) ^ (value & 1 ? POLYNOMIAL : 0); }

// at[k][byte]: what a byte does to the register, k bytes later.
struct Tables {
    uint32_t at[8][256];
};

constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = times_x(value);
        tables.at[0][byte] = value;
    }
    for (int k = 1; k < 8; ++k)
        for (int byte = 0; byte < 256; ++byte) {
            const uint32_t before = tables.at[k - 1][byte];
            tables.at[k][byte] = (before >> 8) ^ tables.at[0][before & 0xFF];
        }
    return tables;
}

constexpr Tables TABLES = make_tables();

// From register to register: without the two inversions that zlib puts around it.
uint32_t by_tables(const uint8_t* data, size_t size, uint32_t crc) {
    for (; size >= 8; size -= 8, data += 8) {
        const uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | uint32_t(data[3]) << 24);
        crc = TABLES.at[7][low & 0xFF] ^ TABLES.at[6][low >> 8 & 0xFF] ^ TABLES.at[5][low >> 16 & 0xFF] ^
              TABLES.at[4][low >> 24] ^ TABLES.at[3][data[4]] ^ TABLES.at[2][data[5]] ^ TABLES.at[1][data[6]] ^
              TABLES.at[0][data[7]];
    }
    for (; size; --size, ++data) crc = (crc >> 8) ^ TABLES.at[0][(crc ^ *data) & 0xFF];
    return crc;
}

#if defined(__PCLMUL__)
// x^power mod P, reflected; one bit up, because the product of two reflected 64-bit numbers comes out one bit low.
constexpr uint64_t power_of_x(int power) {
    uint32_t value = 0x80000000u;
    for (; power; --power) value = times_x(value);
    return uint64_t(value) << 1;
}

// The constants that the paper prints.
static_assert(power_of_x(512 + 32) == 0x154442bd4 && power_of_x(512 - 32) == 0x1c6e41596, "fold by four words");
static_assert(power_of_x(128 + 32) == 0x1751997d0 && power_of_x(128 - 32) == 0x0ccaa009e, "fold by one word");

inline __m128i moved(__m128i word, __m128i powers) {
    return _mm_xor_si128(_mm_clmulepi64_si128(word, powers, 0x00), _mm_clmulepi64_si128(word, powers, 0x11));
}

inline __m128i load(const uint8_t* data) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data)); }

uint32_t by_folding(const uint8_t* data, size_t size, uint32_t crc) {
    constexpr int WORDS = 8;  // in flight at once, since a product takes up to 7 cycles and one can start in each
    if (size < 16 * WORDS) return by_tables(data, size, crc);
    constexpr uint64_t far = power_of_x(128 * WORDS + 32), far_high = power_of_x(128 * WORDS - 32);
    constexpr uint64_t near = power_of_x(128 + 32), near_high = power_of_x(128 - 32);
    const __m128i by_block = _mm_set_epi64x(int64_t(far_high), int64_t(far));
    const __m128i by_word = _mm_set_epi64x(int64_t(near_high), int64_t(near));
    __m128i words[WORDS];
    for (int k = 0; k < WORDS; ++k) words[k] = load(data + 16 * k);
    words[0] = _mm_xor_si128(words[0], _mm_cvtsi32_si128(int(crc)));
    for (data += 16 * WORDS, size -= 16 * WORDS; size >= 16 * WORDS; data += 16 * WORDS, size -= 16 * WORDS)
        for (int k = 0; k < WORDS; ++k) words[k] = _mm_xor_si128(moved(words[k], by_block), load(data + 16 * k));
    __m128i sum = words[0];
    for (int k = 1; k < WORDS; ++k) sum = _mm_xor_si128(moved(sum, by_word), words[k]);
    for (; size >= 16; data += 16, size -= 16) sum = _mm_xor_si128(moved(sum, by_word), load(data));
    uint8_t last[16];  // congruent to all that came before, so its register is theirs
    _mm_storeu_si128(reinterpret_cast<__m128i*>(last), sum);
    return by_tables(data, size, by_tables(last, 16, 0));
}
#endif
}  // namespace

uint32_t crc32(const uint8_t* data, size_t size, uint32_t start) {
#if defined(__PCLMUL__)
    return ~by_folding(data, size, ~start);
#else
    return ~by_tables(data, size, ~start);
#endif
}
}  // namespace NUQ_ISA
}  // namespace nuq
