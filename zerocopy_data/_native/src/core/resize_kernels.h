#pragma once

#include <cstdint>

#include "core/image.h"
#include "core/weights.h"

namespace zcd::kernels {

// Weighted sums along x: for each output i of `w`, Σ weight · pixel over taps of a row, rounded and clipped to a byte.
// `rows` input rows at `in` (their first pixel is input `origin`) give rows at `out`. Input and output rows may be read
// and written up to kSlack bytes beyond their last pixel.
using Across = void (*)(const Weights& w, int origin, const std::uint8_t* in, std::ptrdiff_t in_stride, int rows,
                        std::uint8_t* out, std::ptrdiff_t out_stride);
// Weighted sum along y for output i: rows `in`, `in + stride`, … give `bytes` bytes at `out` (slack as above).
using Down = void (*)(const Weights& w, int i, const std::uint8_t* in, std::ptrdiff_t stride, int bytes,
                      std::uint8_t* out);

struct Table {
  Across across;
  Down down;
  const char* name;
};
const Table& table();

}  // namespace zcd::kernels
