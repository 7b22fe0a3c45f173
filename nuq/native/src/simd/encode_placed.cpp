// Codes of coordinates where workers round together whose number is no power of two.
#include "encoding.h"

namespace nuq {
namespace NUQ_ISA {
void encode_placed(const Encode& job, int64_t first, int64_t last) {
    encode_with(Placed{{job.k0, job.k1}, job.own, job.workers}, job, first, last);
}
}  // namespace NUQ_ISA
}  // namespace nuq
