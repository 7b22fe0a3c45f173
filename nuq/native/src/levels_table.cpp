// The moments of a mixture over many intervals.  One thread: 350 normals at 2,561 points take 2.8 ms, of which a second
// thread would save half on an idle machine and cost several on a busy one, waiting for its share.
#include "levels.h"

NUQ_EXPORT void nuq_mixture_moments(const nuq::Normals* distribution, const double* edges, int64_t intervals,
                                    double* moments) {
    NUQ_CALL(mixture_moments, *distribution, edges, intervals, moments);
}
