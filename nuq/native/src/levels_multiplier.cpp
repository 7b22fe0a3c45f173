// Psi of many sets of levels, and AMQ: the multiplier p of levels +-p^j that makes it smallest
// (nuq.levels.solver_exact.multiplier).
#include "levels_objective.h"

namespace nuq {
namespace {

constexpr int STARTS = 64;

// 0 and p^j, j = 2^(bits - 1) - 1 .. 0.
Vector powers(double p, int bits) {
    const int most = (1 << (bits - 1)) - 1;
    Vector edges(static_cast<size_t>(most) + 2, 0.0);
    for (int j = 0; j <= most; j++) edges[static_cast<size_t>(most - j) + 1] = std::pow(p, j);
    return edges;
}

struct Slope {
    double first, second;
};

// The derivatives of Psi in p, by the chain rule through the levels p^j.
template <class L>
Slope slope(const Objective<L>& objective, double p, int bits, Derivatives& at) {
    objective.derivatives(powers(p, bits), at);
    const size_t n = at.gradient.size();
    double first = 0, second = 0, before = 0;
    for (size_t i = 0; i < n; i++) {
        const double j = static_cast<double>(n - i), one = j * std::pow(p, j - 1),
                     two = j * (j - 1) * std::pow(p, j - 2);
        first += at.gradient[i] * one;
        second += at.diagonal[i] * one * one + at.gradient[i] * two;
        if (i > 0) second -= 2 * at.masses[i] * before * one;
        before = one;
    }
    return {first, second};
}

template <class L>
void multiplier(const Objective<L>& objective, int bits, double lowest, double* answer) {
    double starts[STARTS], psi[STARTS];
    const double a = std::log(lowest / (1 - lowest));
    for (int i = 0; i < STARTS; i++) {
        starts[i] = 1 / (1 + std::exp(-(a + (7.0 - a) * i / (STARTS - 1))));
        psi[i] = objective.value(powers(starts[i], bits));
    }
    double least = HUGE_VAL;
    Derivatives at;
    for (int i = 0; i < STARTS; i++) {
        if ((i > 0 && psi[i] > psi[i - 1]) || (i + 1 < STARTS && psi[i] > psi[i + 1])) continue;
        double p = starts[i], low = starts[std::max(i - 1, 0)], high = starts[std::min(i + 1, STARTS - 1)];
        for (int round = 0; round < 100; round++) {
            const Slope s = slope(objective, p, bits, at);
            (s.first < 0 ? low : high) = p;
            const double newton = s.second > 0 ? p - s.first / s.second : HUGE_VAL;
            const double moved = newton > low && newton < high ? newton : (low + high) / 2;
            const double change = std::fabs(moved - p);
            p = moved;
            if (change <= 1e-14 * p) break;
        }
        const double refined = objective.value(powers(p, bits));
        if (refined < least) least = refined, answer[0] = p, answer[1] = starts[i];
    }
}

template <class L>
void values(const L& distribution, bool symmetric, const double* edges, double* psi, int64_t sets, int64_t count) {
    for (int64_t s = 0; s < sets; s++)
        psi[s] = Objective<L>{distribution, symmetric}.value(Vector(edges + s * count, edges + (s + 1) * count));
}

}  // namespace
}  // namespace nuq

// edges[sets, count]; psi[sets] out.
NUQ_EXPORT void nuq_psi(const nuq::Distribution* distribution, int symmetric, const double* edges, double* psi,
                        int64_t sets, int64_t count) {
    if (distribution->bins.count)
        nuq::values(nuq::HistogramDistribution(*distribution), symmetric != 0, edges, psi, sets, count);
    else
        nuq::values(nuq::NormalDistribution(*distribution), symmetric != 0, edges, psi, sets, count);
}

// answer[2] out: p and the start it came from; distribution is that of |r|, bits at least 2.
NUQ_EXPORT void nuq_multiplier(const nuq::Distribution* distribution, int bits, double lowest, double* answer) {
    if (distribution->bins.count) {
        const nuq::HistogramDistribution made(*distribution);
        nuq::multiplier(nuq::Objective<nuq::HistogramDistribution>{made, true}, bits, lowest, answer);
    } else {
        const nuq::NormalDistribution made(*distribution);
        nuq::multiplier(nuq::Objective<nuq::NormalDistribution>{made, true}, bits, lowest, answer);
    }
}
