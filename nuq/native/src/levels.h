// What the level solvers share: a distribution of a coordinate as plain arrays, made by nuq/native/levels.py.
#pragma once
#include <cstdint>

#include "isa.h"

namespace nuq {

// sum_j scale_j N(mean_j, sigma_j^2), scale_j = weight / mass of the normal inside the support.
struct Normals {
    int64_t count;
    const double *means, *sigmas, *scales;
};

// The arrays of nuq.levels.histogram.Histogram, which see: per bin width, start, slope, power, excess and sums[3], at
// the edges the prefix sums.
struct Bins {
    int64_t count;
    const double *edges, *width, *start, *slope, *power, *excess, *sums, *left, *right;
    double origin, median;
};

// One of the two; the support begins at begin and ends at end.
struct Distribution {
    Normals normals;
    Bins bins;
    double begin, end;
};

// What one layer of the dynamic program needs: the cost of an edge at j after one at i is a_i + x_j b_i + weight_j x_i
// + rest_j.
struct Layer {
    const double *a, *b, *x, *weight, *rest;
    double* next;
    int32_t* from;
};

}  // namespace nuq

NUQ_DECLARE(void, mixture_moments, const nuq::Normals& distribution, const double* edges, int64_t intervals,
            double* moments)
NUQ_DECLARE(void, best_layer, const nuq::Layer& layer, int64_t first, int64_t last, int64_t low, int64_t high)
