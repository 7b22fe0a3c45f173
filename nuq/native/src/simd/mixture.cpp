// Moments of a mixture of normals over many intervals, the same bits for every instruction set: no multiply-add is
// fused, and the components of an interval are added in their order, whatever the width of a vector.
#include <cmath>
#include <cstring>

#include "../levels.h"
#include "doubles.h"

namespace nuq {
namespace NUQ_ISA {
namespace {

// sum_i c[i] x^i, count a multiple of four (or two more), in four chains of x^4 that run side by side: one alone would
// wait for itself.
inline D four(const double* c, int count, D x, D x2, D x4) {
    int i = (count - 1) / 4 * 4;
    D p0 = all(c[i]), p1 = all(c[i + 1]), p2 = all(i + 2 < count ? c[i + 2] : 0.0),
      p3 = all(i + 3 < count ? c[i + 3] : 0.0);
    for (i -= 4; i >= 0; i -= 4) {
        p0 = p0 * x4 + c[i];
        p1 = p1 * x4 + c[i + 1];
        p2 = p2 * x4 + c[i + 2];
        p3 = p3 * x4 + c[i + 3];
    }
    return (p0 + p1 * x) + (p2 + p3 * x) * x2;
}

constexpr double EXP[] = {
    1.0,        1.0,         0.5,          1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
    1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};

// e^x for x <= 0, to 2e-16: x = n log 2 + r, |r| <= log(2) / 2, and Taylor's series of e^r; 0 where it is not a normal
// number.
inline D exp_negative(D x) {
    const D rounder = all(0x1.8p52);  // adding it rounds to an integer, which then stands in the low bits
    const D shifted = x * 1.4426950408889634 + rounder;
    const D n = shifted - rounder;
    // log 2 in two parts, the first short: n times it is exact
    const D r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
    const D s = r * r;
    const D p = four(EXP, 14, r, s, s * s);
    const Int power = ((Int)shifted + 1023) << 52;
    const Int kept = x > all(-708.0);
    return (D)((Int)(p * (D)power) & kept);
}

// Mills' ratio Phi(-z) / phi(z), z >= 0, to 6e-16: a polynomial in t = (z - 5) / (z + 5) times 1 / (z + 5).  The
// coefficients are the Chebyshev series of (z + 5) Phi(-z) / phi(z), cut after degree 23, from 50-digit arithmetic.
constexpr double MILLS[] = {
    0x1.ed96b8318f6c4p+0, -0x1.aaf94e206d6dap+0, 0x1.3dd60739e79a7p+0, -0x1.9262efbe12bcep-1,
    0x1.a7927af8ee7c7p-2, -0x1.62d360c6407c8p-3, 0x1.ab031a060edf5p-5, -0x1.ebbc3253d404ep-8,
    -0x1.06239757ad594p-9, 0x1.660d41b5713bcp-10, -0x1.381fdaf715630p-13, -0x1.0596f2526778fp-13,
    0x1.5ec0154f60792p-15, 0x1.4eb2b5608b4afp-17, -0x1.d1c5bd0b80276p-18, -0x1.c0dc4175c836fp-21,
    0x1.23ac2a4690152p-20, 0x1.9f417e777da80p-24, -0x1.6ae6bb3c70f1dp-23, -0x1.2ae5c280e3c39p-26,
    0x1.8f6afd6b7f337p-26, 0x1.b5ffe8a939796p-29, -0x1.0e97b936649b5p-29, -0x1.6ee3fdc84b8f2p-32};

inline D mills(D z) {
    const D q = 1.0 / (z + 5.0), t = (z - 5.0) * q;
    const D s = t * t;
    return four(MILLS, 24, t, s, s * s) * q;
}

inline D magnitude(D z) { return (D)((Int)z & 0x7fffffffffffffff); }

constexpr int BLOCK = 256;   // edges whose bells and tails stay in the first cache
constexpr double FAR = 37.7;  // beyond, e^(-z^2 / 2) counts as zero

}  // namespace

// moments[k * intervals + i], k = 0, 1, 2: the integral over [edges[i], edges[i + 1]] of (r - edges[i])^k sum_j scale_j
// N(mean_j, sigma_j^2). The closed form of CondTruncNorm.interval_moments, component by component, so that masses of
// 1e-200 keep their digits.
void mixture_moments(const Normals& distribution, const double* edges, int64_t intervals, double* moments) {
    alignas(64) double z[BLOCK + LANES], bell[BLOCK + LANES], tail[BLOCK + LANES], sums[3][BLOCK + LANES];
    constexpr int INTERVALS = BLOCK - LANES;
    for (int64_t start = 0; start < intervals; start += INTERVALS) {
        const int count = static_cast<int>(intervals - start < INTERVALS ? intervals - start : INTERVALS);
        const double* x = edges + start;
        double padded[BLOCK + LANES];
        for (int i = 0; i < BLOCK + LANES; i++) padded[i] = x[i <= count ? i : count];
        std::memset(sums, 0, sizeof(sums));
        for (int64_t j = 0; j < distribution.count; j++) {
            const double mean = distribution.means[j], sigma = distribution.sigmas[j], scale = distribution.scales[j],
                         shrink = 1 / sigma;
            if ((x[0] - mean) * shrink > FAR || (x[count] - mean) * shrink < -FAR) continue;
            for (int i = 0; i <= count; i += LANES) {
                const D place = (load(padded + i) - mean) * shrink;
                const D density = exp_negative(place * place * -0.5) * 0.39894228040143267794;
                store(z + i, place);
                store(bell + i, density);
                store(tail + i, density * mills(magnitude(place)));
            }
            const double scale1 = scale * sigma, scale2 = scale1 * sigma;
            for (int i = 0; i < count; i += LANES) {
                const D a = load(z + i), b = load(z + i + 1), bell_a = load(bell + i), bell_b = load(bell + i + 1);
                const D tail_a = load(tail + i), tail_b = load(tail + i + 1);
                const D mass = choose(a >= all(0.0), tail_a - tail_b,
                                      choose(b <= all(0.0), tail_b - tail_a, 1.0 - tail_a - tail_b));
                const D one = bell_a - bell_b, two = mass + a * bell_a - b * bell_b;
                store(sums[0] + i, load(sums[0] + i) + mass * scale);
                store(sums[1] + i, load(sums[1] + i) + (one - a * mass) * scale1);
                store(sums[2] + i, load(sums[2] + i) + (two - a * (one * 2.0 - a * mass)) * scale2);
            }
        }
        for (int k = 0; k < 3; k++)
            std::memcpy(moments + k * intervals + start, sums[k], static_cast<size_t>(count) * sizeof(double));
    }
}

}  // namespace NUQ_ISA
}  // namespace nuq
