// Psi, the expected variance of stochastic rounding, and its derivatives in the levels: nuq.levels.objective, for one
// set of levels.
#pragma once
#include <vector>

#include "levels_distributions.h"

namespace nuq {

using Vector = std::vector<double>;

struct Derivatives {
    double value = 0;
    Vector gradient, diagonal;  // of the inner edges: n - 1
    // of the intervals: n; the Hessian's other entries are minus the masses between neighbours
    Vector masses;
};

// edges: n + 1, rising, the first and last fixed.  symmetric: the first is 0, the others the positive levels, and
// distribution that of |r|.
template <class L>
struct Objective {
    const L& distribution;
    bool symmetric;

    double value(const Vector& edges) const {
        double sum = 0;
        auto from = distribution.mark(edges[0]);
        for (size_t i = 0; i + 1 < edges.size(); i++) {
            const auto to = distribution.mark(edges[i + 1]);
            sum += part(edges, i, distribution.between(from, to));
            from = to;
        }
        return std::max(sum, 0.0);
    }

    void derivatives(const Vector& edges, Derivatives& at) const {
        const size_t n = edges.size() - 1;
        at.value = 0;
        at.gradient.assign(n - 1, 0.0);
        at.diagonal.assign(n - 1, 0.0);
        at.masses.resize(n);
        auto from = distribution.mark(edges[0]);
        for (size_t i = 0; i < n; i++) {
            const auto to = distribution.mark(edges[i + 1]);
            const Moments m = distribution.between(from, to);
            const bool centre = symmetric && i == 0;
            at.value += part(edges, i, m);
            at.masses[i] = m.m0;
            if (i > 0) at.gradient[i - 1] -= (edges[i + 1] - edges[i]) * m.m0 - m.m1;
            if (i + 1 < n) {
                const double density = distribution.pdf(to);
                at.gradient[i] += centre ? 2 * edges[1] * m.m0 : m.m1;
                at.diagonal[i] = (edges[i + 2] - edges[i]) * density;
                if (centre) at.diagonal[i] += 2 * m.m0 + edges[1] * density;
            }
            from = to;
        }
        at.value = std::max(at.value, 0.0);
    }

   private:
    double part(const Vector& edges, size_t i, const Moments& m) const {
        return (symmetric && i == 0 ? edges[1] * edges[1] * m.m0 : (edges[i + 1] - edges[i]) * m.m1) - m.m2;
    }
};

// ALQ, ALQ-G (nuq.levels.solver_exact, which see): edges are replaced by those of a minimum, and Psi there is returned.
template <class L>
double descend(const Objective<L>& objective, Vector& edges);
template <class L>
double projected_descent(const Objective<L>& objective, Vector& edges);

// The edges pulled inward where they leave intervals of less than 1e-11 of the mass.
template <class L>
void occupy(const L& distribution, Vector& edges);

}  // namespace nuq
