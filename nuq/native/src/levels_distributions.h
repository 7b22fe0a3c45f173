// The two distributions that levels are fitted to, as the solvers ask them: a histogram with a density inside its bins
// (nuq.levels.histogram, formula for formula), and one or two normals in closed form (a truncated normal; folded, the
// normal and its mirror image).
//
// A mark is a point with everything that the distribution knows there; moments of an interval come from the marks at
// its ends.
#pragma once
#include <algorithm>
#include <cmath>

#include "levels.h"

namespace nuq {

// Integrals over an interval [a, b] of (r - a)^k dF.
struct Moments {
    double m0, m1, m2;
};

class HistogramDistribution {
   public:
    struct Mark {
        double x, left[3], right[3];  // sums below and above x, about the origin
        int64_t bin;
        double t;  // place in the bin, 0 to 1
    };

    explicit HistogramDistribution(const Distribution& distribution)
        : b(distribution.bins), begin(distribution.begin), end(distribution.end) {
        log_bins = 0;
        while ((int64_t{1} << log_bins) < b.count) log_bins++;
    }

    Mark mark(double x) const {
        Mark m;
        m.x = x;
        m.bin = search(b.edges, x);
        m.t = std::clamp((x - b.edges[m.bin]) / b.width[m.bin], 0.0, 1.0);
        double part[3];
        inside(m.bin, m.t, part);
        for (int k = 0; k < 3; k++) {
            m.left[k] = b.left[k * (b.count + 1) + m.bin] + part[k];
            m.right[k] = b.right[k * (b.count + 1) + m.bin + 1] + (b.sums[k * b.count + m.bin] - part[k]);
        }
        return m;
    }

    Moments between(const Mark& from, const Mark& to) const {
        double m[3];
        for (int k = 0; k < 3; k++) m[k] = from.x >= b.median ? from.right[k] - to.right[k] : to.left[k] - from.left[k];
        const double shift = from.x - b.origin;
        return {m[0], m[1] - shift * m[0], m[2] - shift * (2 * m[1] - shift * m[0])};
    }

    double pdf(const Mark& m) const {
        const double s = b.slope[m.bin], power = b.power[m.bin], k = std::max(std::fabs(power), 2.0);
        const double shape = power == 0 ? 1 - s + 2 * s * m.t : k * std::pow(power > 0 ? m.t : 1 - m.t, k - 1);
        return m.x >= begin && m.x <= end ? shape * b.sums[m.bin] / b.width[m.bin] : 0.0;
    }

    double cdf(double x) const { return std::max(mark(std::max(x, begin)).left[0], 0.0); }
    double sf(double x) const { return std::max(mark(std::min(x, end)).right[0], 0.0); }
    double ppf(double u) const { return u <= 0.5 ? from_left(u) : from_right(1 - u); }
    double isf(double u) const { return u <= 0.5 ? from_right(u) : from_left(1 - u); }
    double median() const { return b.median; }

   private:
    const Bins b;
    const double begin, end;
    int log_bins;

    // The last bin whose value is at most x, of count rising values.
    int64_t search(const double* values, double x) const {
        int64_t low = 0, span = b.count;
        while (span > 1) {
            const int64_t half = span / 2;
            low = values[low + half] <= x ? low + half : low;
            span -= half;
        }
        return low;
    }

    void inside(int64_t bin, double t, double* part) const {
        const double s = b.slope[bin], power = b.power[bin];
        double g0, g1, g2;
        if (power == 0) {
            g0 = t * (1 - s + s * t), g1 = t * t * ((1 - s) / 2 + s * t * (2.0 / 3)),
            g2 = t * t * t * ((1 - s) / 3 + s * t / 2);
        } else {
            const double k = std::max(std::fabs(power), 2.0), v = power > 0 ? t : 1 - t;
            const double p0 = std::pow(v, k), c1 = k / (k + 1), c2 = k / (k + 2), p1 = c1 * p0 * v,
                         p2 = c2 * p0 * v * v;
            if (power > 0)
                g0 = p0, g1 = p1, g2 = p2;
            else
                g0 = 1 - p0, g1 = 1 - p0 - c1 + p1, g2 = 1 - p0 - 2 * (c1 - p1) + c2 - p2;
        }
        const double w = b.sums[bin], d = b.start[bin], h = b.width[bin];
        part[0] = w * g0;
        part[1] = w * (d * g0 + h * g1);
        part[2] = w * (d * d * g0 + 2 * d * h * g1 + h * h * g2) + b.excess[bin] * g0;
    }

    double from_left(double u) const {
        const int64_t bin = search(b.left, u);
        return at_share(bin, u - b.left[bin]);
    }

    double from_right(double u) const {  // right falls: the first bin whose upper part is at most u
        int64_t low = 0, high = b.count - 1;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (b.right[middle + 1] <= u)
                high = middle;
            else
                low = middle + 1;
        }
        return at_share(low, b.sums[low] - (u - b.right[low + 1]));
    }

    double at_share(int64_t bin, double mass) const {
        const double w = b.sums[bin], s = b.slope[bin], power = b.power[bin], k = std::max(std::fabs(power), 2.0);
        const double u = w > 0 ? std::clamp(mass / w, 0.0, 1.0) : 0.0;
        double t;
        if (power == 0)
            t = u > 0 ? 2 * u / ((1 - s) + std::sqrt((1 - s) * (1 - s) + 4 * s * u)) : 0.0;
        else
            t = power > 0 ? std::pow(u, 1 / k) : 1 - std::pow(1 - u, 1 / k);
        return b.edges[bin] + b.width[bin] * t;
    }
};

class NormalDistribution {
   public:
    static constexpr int MOST = 2;
    struct Mark {
        double x, z[MOST], bell[MOST], tail[MOST];
    };

    explicit NormalDistribution(const Distribution& distribution)
        : n(distribution.normals), begin(distribution.begin), end(distribution.end), low(mark(begin)), high(mark(end)) {
        middle = ppf(0.5);
    }

    Mark mark(double x) const {
        Mark m;
        m.x = x;
        for (int64_t j = 0; j < n.count; j++) {
            m.z[j] = (x - n.means[j]) / n.sigmas[j];
            m.bell[j] = 0.39894228040143267794 * std::exp(-0.5 * m.z[j] * m.z[j]);
            m.tail[j] = 0.5 * std::erfc(std::fabs(m.z[j]) * 0.70710678118654752440);
        }
        return m;
    }

    Moments between(const Mark& from, const Mark& to) const {
        Moments m{0, 0, 0};
        for (int64_t j = 0; j < n.count; j++) {
            const double a = from.z[j], b = to.z[j], scale = n.scales[j], sigma = n.sigmas[j], mass = kept(from, to, j);
            const double one = from.bell[j] - to.bell[j], two = mass + a * from.bell[j] - b * to.bell[j];
            m.m0 += mass * scale;
            m.m1 += (one - a * mass) * (scale * sigma);
            m.m2 += (two - a * (2 * one - a * mass)) * (scale * sigma * sigma);
        }
        return m;
    }

    double pdf(const Mark& m) const {
        double density = 0;
        for (int64_t j = 0; j < n.count; j++) density += m.bell[j] * (n.scales[j] / n.sigmas[j]);
        return density;
    }

    double cdf(double x) const { return below(mark(x)); }
    double sf(double x) const { return above(mark(x)); }
    double ppf(double u) const { return u <= 0.5 ? invert(u, false) : invert(1 - u, true); }
    double isf(double u) const { return u <= 0.5 ? invert(u, true) : invert(1 - u, false); }
    double median() const { return middle; }

   private:
    const Normals n;
    const double begin, end;
    const Mark low, high;
    double middle;

    static double kept(const Mark& from, const Mark& to, int64_t j) {
        if (from.z[j] >= 0) return from.tail[j] - to.tail[j];
        return to.z[j] <= 0 ? to.tail[j] - from.tail[j] : 1 - from.tail[j] - to.tail[j];
    }

    double mass(const Mark& from, const Mark& to) const {
        double sum = 0;
        for (int64_t j = 0; j < n.count; j++) sum += kept(from, to, j) * n.scales[j];
        return std::clamp(sum, 0.0, 1.0);
    }

    double below(const Mark& m) const { return m.x <= begin ? 0.0 : mass(low, m); }
    double above(const Mark& m) const { return m.x >= end ? 0.0 : mass(m, high); }

    // As nuq.levels.distribution.invert: Newton's method on the logarithm of the smaller tail, inside a bracket.
    double invert(double u, bool upper) const {
        if (u <= 0) return upper ? end : begin;
        const double sign = upper ? -1.0 : 1.0;
        double a = upper ? end : begin, b = upper ? begin : end;  // tail(a) <= u < tail(b)
        const double guess = std::sqrt(-2 * std::log(std::min(u, 0.5)));  // of the tail, in standard deviations
        double x = std::clamp(n.means[0] - sign * n.sigmas[0] * guess * 0.8, std::min(a, b), std::max(a, b));
        for (int round = 0; round < 100; round++) {
            const Mark m = mark(x);
            const double value = upper ? above(m) : below(m);
            if (value == u) break;
            (value < u ? a : b) = x;
            const double newton = x - sign * value * std::log(value / u) / pdf(m);
            const bool in = newton > std::min(a, b) && newton < std::max(a, b);
            const double moved = in ? newton : (a + b) / 2;
            const double change = std::fabs(moved - x);
            x = moved;
            if (change <= 1e-15 * std::fabs(x) || change < 1e-300) break;
        }
        return x;
    }
};

}  // namespace nuq
