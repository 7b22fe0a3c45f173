// Codes of coordinates without a noise: interior levels are thresholds.
#include "encoding.h"

namespace nuq {
namespace NUQ_ISA {
void encode_thresholds(const Encode& job, int64_t first, int64_t last) {
    encode_with(Thresholds{}, job, first, last);
}
}  // namespace NUQ_ISA
}  // namespace nuq
