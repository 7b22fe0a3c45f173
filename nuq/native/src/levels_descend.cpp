// ALQ's coordinate descent and Newton's method, and ALQ-G's projected gradient: nuq.levels.solver_exact, one start at a
// time.
#include <cstring>
#include <limits>

#include "levels_objective.h"

namespace nuq {
namespace {

constexpr double TOLERANCE = 1e-13, NOTHING = 1e-24, EMPTY = 1e-11;
constexpr int NUM_SWEEPS = 6, MAX_NEWTON = 60, MAX_GRADIENT = 3000;

// The minimiser between fixed neighbours; where no mass lies there, a quarter of the way from the side of the median.
template <class L>
double between(const L& distribution, double left, double right) {
    const double width = right - left;
    const Moments m = distribution.between(distribution.mark(left), distribution.mark(right));
    double x;
    if (width * m.m0 > 0) {
        const double share = std::clamp(m.m1 / (width * m.m0), 0.0, 1.0);
        const double below = distribution.cdf(left) + m.m0 * (1 - share), above = distribution.sf(right) + m.m0 * share;
        x = below <= above ? distribution.ppf(std::clamp(below, 0.0, 1.0))
                           : distribution.isf(std::clamp(above, 0.0, 1.0));
    } else {
        x = distribution.median() <= left    ? left + width / 4
            : distribution.median() >= right ? right - width / 4
                                             : left + width / 2;
    }
    return std::clamp(x, left + 1e-9 * width, right - 1e-9 * width);
}

// The root of 2 x G(x) = integral over [x, right] of (right - r) dG: Newton inside a bracket.
template <class L>
double innermost(const L& distribution, double x, double right) {
    const auto first = distribution.mark(0.0), last = distribution.mark(right);
    double low = 0, high = right;
    for (int round = 0; round < 100; round++) {
        const auto here = distribution.mark(x);
        const Moments a = distribution.between(first, here), b = distribution.between(here, last);
        const double value = 2 * x * a.m0 - ((right - x) * b.m0 - b.m1);
        (value < 0 ? low : high) = x;
        const double rise = 2 * a.m0 + (x + right) * distribution.pdf(here);
        const double newton = rise > 0 ? x - value / rise : -1.0;
        const double moved = newton > low && newton < high ? newton : (low + high) / 2;
        const double change = std::fabs(moved - x);
        x = moved;
        if (change <= 1e-11 * x) break;
    }
    return x;
}

template <class L>
void sweep(const Objective<L>& objective, Vector& edges) {
    const size_t n = edges.size() - 1;
    for (size_t parity = 1; parity <= 2; parity++)
        for (size_t i = parity; i < n; i += 2)
            edges[i] = objective.symmetric && i == 1 ? innermost(objective.distribution, edges[1], edges[2])
                                                     : between(objective.distribution, edges[i - 1], edges[i + 1]);
}

double hessian_scale(const Derivatives& at, size_t i) {
    const double scale = std::fabs(at.diagonal[i]) + at.masses[i] + at.masses[i + 1];
    return scale > 0 ? scale : 1.0;
}

// -H^-1 g with damping * scale added to the diagonal of the tridiagonal H; rows are exchanged where that keeps the
// pivot large.
void newton_step(const Derivatives& at, double damping, Vector& step) {
    const size_t n = at.gradient.size();
    Vector main(n), above(n, 0.0), second(n, 0.0), under(n, 0.0);
    step.resize(n);
    for (size_t i = 0; i < n; i++) {
        main[i] = at.diagonal[i] + (damping + 1e-14) * hessian_scale(at, i);
        if (i + 1 < n) above[i] = under[i] = -at.masses[i + 1];
        step[i] = -at.gradient[i];
    }
    for (size_t i = 0; i + 1 < n; i++) {
        if (std::fabs(under[i]) > std::fabs(main[i])) {
            std::swap(main[i], under[i]);
            std::swap(above[i], main[i + 1]);
            std::swap(second[i], above[i + 1]);
            std::swap(step[i], step[i + 1]);
        }
        const double factor = under[i] / main[i];
        main[i + 1] -= factor * above[i];
        above[i + 1] -= factor * second[i];
        step[i + 1] -= factor * step[i];
    }
    for (size_t i = n; i-- > 0;) {
        double sum = step[i];
        if (i + 1 < n) sum -= above[i] * step[i + 1];
        if (i + 2 < n) sum -= second[i] * step[i + 2];
        step[i] = sum / main[i];
    }
}

// The part of step that leaves each gap a tenth of its width.
double room(const Vector& edges, const Vector& step) {
    const size_t n = edges.size() - 1;
    double least = 2.0;
    for (size_t i = 0; i < n; i++) {
        const double gap = edges[i + 1] - edges[i];
        const double closing = (i > 0 ? step[i - 1] : 0.0) - (i + 1 < n ? step[i] : 0.0);
        if (!(closing <= 0.45 * gap)) least = std::min(least, 0.9 * gap / closing);
    }
    return least;
}

bool finite(const Vector& v) {
    for (double x : v)
        if (!std::isfinite(x)) return false;
    return true;
}

}  // namespace

template <class L>
void occupy(const L& distribution, Vector& edges) {
    const size_t n = edges.size() - 1;
    if (n < 2) return;
    Vector u(n - 1), apart(n - 1);
    double most = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const double rank = EMPTY * static_cast<double>(i + 1);
        u[i] = distribution.cdf(edges[i + 1]);
        most = std::max(most, u[i] - rank);
        apart[i] = most + rank;
    }
    most = 0;
    for (size_t i = n - 1; i-- > 0;) {
        const double rank = EMPTY * static_cast<double>(n - 1 - i);
        most = std::max(most, 1 - apart[i] - rank);
        apart[i] = 1 - (most + rank);
    }
    for (size_t i = 0; i + 1 < n; i++)
        if (std::fabs(apart[i] - u[i]) > EMPTY / 2) edges[i + 1] = distribution.ppf(std::clamp(apart[i], 0.0, 1.0));
    std::sort(edges.begin(), edges.end());
}

template <class L>
double descend(const Objective<L>& objective, Vector& edges) {
    occupy(objective.distribution, edges);
    for (int round = 0; round < NUM_SWEEPS; round++) sweep(objective, edges);
    Derivatives at, after;
    objective.derivatives(edges, at);
    const size_t inner = at.gradient.size();
    double damping = 0;
    Vector step, trial;
    for (int round = 0; round < MAX_NEWTON && inner; round++) {
        newton_step(at, damping, step);
        const double part = room(edges, step);
        trial = edges;
        bool taken = part > 0.5 && finite(step);
        double promise = 0;
        for (size_t i = 0; i < inner; i++) promise += at.gradient[i] * step[i];
        if (taken) {
            for (size_t i = 0; i < inner; i++) trial[i + 1] += step[i] * std::min(part, 1.0);
            objective.derivatives(trial, after);
            taken = after.value <= at.value;
        }
        const bool open = !(std::fabs(promise) <= TOLERANCE * at.value + NOTHING) && damping < 1e9;
        damping = taken ? (damping < 1e-7 ? 0.0 : damping / 10) : std::max(10 * damping, 1e-4);
        if (!taken && open) {
            trial = edges;
            sweep(objective, trial);
            objective.derivatives(trial, after);
        }
        if (taken || open) {
            std::swap(edges, trial);
            std::swap(at, after);
        }
        if (!open) break;
    }
    return at.value;
}

template <class L>
double projected_descent(const Objective<L>& objective, Vector& edges) {
    occupy(objective.distribution, edges);
    Derivatives at, after;
    objective.derivatives(edges, at);
    const size_t inner = at.gradient.size();
    Vector recent(10, at.value), step(inner), trial;
    double rate = 1;
    for (int turn = 0; turn < MAX_GRADIENT && inner; turn++) {
        trial = edges;
        double promise = 0;
        for (size_t i = 0; i < inner; i++) {
            const double limit = std::min(edges[i + 1] - edges[i], edges[i + 2] - edges[i + 1]) * (0.5 - 1e-9);
            const double scale = hessian_scale(at, i);
            step[i] = std::clamp(-rate * at.gradient[i] / scale, -limit, limit);
            trial[i + 1] += step[i];
            promise += at.gradient[i] * at.gradient[i] / scale;
        }
        objective.derivatives(trial, after);
        const bool taken = after.value <= *std::max_element(recent.begin(), recent.end());
        const bool open = promise > TOLERANCE * at.value + NOTHING && rate > 1e-12;
        double bend = 0, length = 0;
        for (size_t i = 0; i < inner; i++) {
            bend += step[i] * (after.gradient[i] - at.gradient[i]);
            length += hessian_scale(at, i) * step[i] * step[i];
        }
        rate = !taken ? rate / 2 : bend > 1e-5 * length ? length / bend : 10.0;
        if (taken) {
            std::swap(edges, trial);
            std::swap(at, after);
        }
        recent[static_cast<size_t>(turn % 10)] = at.value;
        if (!open) break;
    }
    return at.value;
}

template void occupy(const HistogramDistribution&, Vector&);
template void occupy(const NormalDistribution&, Vector&);

}  // namespace nuq

namespace {

template <class L>
void solve(const L& distribution, bool symmetric, bool projected, double* edges, double* psi, int64_t starts,
           int64_t count) {
    const nuq::Objective<L> objective{distribution, symmetric};
    for (int64_t s = 0; s < starts; s++) {
        nuq::Vector row(edges + s * count, edges + (s + 1) * count);
        psi[s] = projected ? nuq::projected_descent(objective, row) : nuq::descend(objective, row);
        std::copy(row.begin(), row.end(), edges + s * count);
    }
}

}  // namespace

// edges[starts, count] in and out; psi[starts] out.
NUQ_EXPORT void nuq_descend(const nuq::Distribution* distribution, int symmetric, int projected, double* edges,
                            double* psi, int64_t starts, int64_t count) {
    if (distribution->bins.count)
        solve(nuq::HistogramDistribution(*distribution), symmetric != 0, projected != 0, edges, psi, starts, count);
    else
        solve(nuq::NormalDistribution(*distribution), symmetric != 0, projected != 0, edges, psi, starts, count);
}
