#include <algorithm>
#include <cmath>

#include "core/weights.h"

namespace zcd {
namespace {

constexpr int kPrecision = 32 - 8 - 2;  // Pillow's PRECISION_BITS
constexpr int kLowBits = 15;

double triangle(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
  constexpr double a = -0.5;  // Keys 1981, as in Pillow
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

}  // namespace

void Weights::prepare(int in_size, int out_size, int first, int count, Filter filter) {
  const double radius = filter == Filter::bicubic ? 2.0 : 1.0;
  const double scale = static_cast<double>(in_size) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = radius * filter_scale;
  const auto taps = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  const double inverse = 1.0 / filter_scale;

  count_ = count;
  identity_ = in_size == out_size;
  tap_stride_ = (taps + 3) & ~std::size_t{3};
  pair_stride_ = tap_stride_;
  const auto n = static_cast<std::size_t>(count);
  bounds_.resize(2 * n);
  fixed_.assign(n * tap_stride_, 0);
  pairs_.resize(n * pair_stride_);
  real_.resize(taps);
  blends_ = true;

  for (std::size_t i = 0; i < n; ++i) {
    const double center = (first + static_cast<int>(i) + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(in_size, static_cast<int>(center + support + 0.5));
    double sum = 0.0;
    for (int k = begin; k < end; ++k) {
      const double x = (k - center + 0.5) * inverse;
      const double w = filter == Filter::bicubic ? cubic(x) : triangle(x);
      real_[static_cast<std::size_t>(k - begin)] = w;
      sum += w;
    }
    std::int32_t* fixed = fixed_.data() + i * tap_stride_;
    for (int k = 0; k < end - begin; ++k) {
      double w = real_[static_cast<std::size_t>(k)];
      if (sum != 0.0) w /= sum;
      const double shifted = w * (1 << kPrecision);
      fixed[k] = static_cast<std::int32_t>(w < 0 ? -0.5 + shifted : 0.5 + shifted);
    }
    blends_ = blends_ && end - begin <= 2 && fixed[0] >= 0 && fixed[1] >= 0 && fixed[0] + fixed[1] == 1 << kPrecision;
    bounds_[2 * i] = begin;
    bounds_[2 * i + 1] = end - begin;
    std::uint32_t* pair = pairs_.data() + i * pair_stride_;
    for (std::size_t k = 0; k < tap_stride_; k += 2) {
      const auto low = [&](std::size_t t) { return static_cast<std::uint32_t>(fixed[t] & ((1 << kLowBits) - 1)); };
      const auto high = [&](std::size_t t) { return static_cast<std::uint32_t>(fixed[t] >> kLowBits) & 0xffffu; };
      pair[k] = low(k) | low(k + 1) << 16;
      pair[k + 1] = high(k) | high(k + 1) << 16;
    }
  }
}

int Weights::first_input() const {
  int first = bounds_[0];
  for (int i = 1; i < count_; ++i) first = std::min(first, begin(i));
  return first;
}

int Weights::last_input() const {
  int last = 0;
  for (int i = 0; i < count_; ++i) last = std::max(last, begin(i) + taps(i));
  return last;
}

}  // namespace zcd
