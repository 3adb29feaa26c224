#pragma once

#include <cstdint>
#include <vector>

#include "core/image.h"
#include "core/weights.h"

namespace zcd::kernels {

// A weighted mean of two pixels in 16-bit arithmetic, exact to the last bit: most of enlarging is that.
//
// With weights that sum to one (2^22), near·(1 - w) + far·w + 1/2 is near + (far - near)·w + 1/2. `near` is the pixel
// with the greater weight, so w is at most 2^21 and is kept as 64·high + low with `high` in 15 bits.
struct BlendWeight {
  bool swapped;  // near is the second tap
  std::int16_t high, low;
};
BlendWeight blend_weight(const Weights& w, int i);  // w.blends()

// What the horizontal pass needs for each eight bytes of an output row: where to read 16 bytes, and which of them to mix.
class BlendAcross {
 public:
  // False when some eight bytes need more than 16 of the input: then this pass is not for them. `w.blends()` must hold.
  bool prepare(const Weights& w, int origin);

  struct alignas(16) Eight {
    std::int8_t near[16], far[16];  // shuffles that widen bytes to 16 bits
    std::int16_t high[8], low[8];
    std::ptrdiff_t from;
  };
  const std::vector<Eight>& eights() const { return eights_; }  // an even number

 private:
  std::vector<Eight> eights_;
};

// As Across and Down in resize_kernels.h, for two taps. Output rows are written up to a multiple of 16 bytes.
using AcrossBlend = void (*)(const BlendAcross& plan, const std::uint8_t* in, std::ptrdiff_t in_stride, int rows,
                             std::uint8_t* out, std::ptrdiff_t out_stride);
using DownBlend = void (*)(const BlendWeight& weight, const std::uint8_t* in, std::ptrdiff_t stride, int bytes,
                           std::uint8_t* out);

struct BlendTable {
  AcrossBlend across;
  DownBlend down;
};
const BlendTable* blend_table();  // null without AVX2

}  // namespace zcd::kernels
