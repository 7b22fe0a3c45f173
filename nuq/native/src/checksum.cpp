// zlib's crc32, at memory speed.
#include "isa.h"

NUQ_DECLARE(uint32_t, crc32, const uint8_t* data, size_t size, uint32_t start)

NUQ_EXPORT uint32_t nuq_crc32(const uint8_t* data, size_t size, uint32_t start) {
    return NUQ_CALL(crc32, data, size, start);
}
