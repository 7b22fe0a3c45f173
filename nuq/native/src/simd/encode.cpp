// Codes of coordinates, by the noise that they need.  One noise to a file: the compiler inlines only so much in one.
#include "encoding.h"

namespace nuq {
namespace NUQ_ISA {
void encode(const Encode& job, int64_t first, int64_t last) {
    if (!job.stochastic) encode_thresholds(job, first, last);
    else encode_with(Hash(job.k0, job.k1, job.own, job.workers), job, first, last);
}
}  // namespace NUQ_ISA
}  // namespace nuq
