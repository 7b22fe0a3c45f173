// Vectors of doubles, for the level solvers.
#pragma once
#include "vector.h"

namespace nuq {
namespace NUQ_ISA {
namespace {
constexpr int LANES = W / 2;
typedef int64_t Int __attribute__((vector_size(4 * W), may_alias));

inline D load(const double* from) { return load<D>(from); }

inline D all(double x) { return x - D{}; }

inline D choose(Int which, D yes, D no) { return (D)(((Int)yes & which) | ((Int)no & ~which)); }
}  // namespace
}  // namespace NUQ_ISA
}  // namespace nuq
