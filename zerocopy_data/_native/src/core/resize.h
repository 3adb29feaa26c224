#pragma once

#include <cstdint>
#include <vector>

#include "core/image.h"
#include "core/resize_blend.h"
#include "core/weights.h"

namespace zcd {

// Rows of a finished image, top to bottom.
struct RowSink {
  virtual ~RowSink() = default;
  virtual void row(int y, const std::uint8_t* rgb) = 0;
};

// One resize from `in_w x in_h` to `out_w x out_h` of which only the `window` (in output coordinates) is wanted.
struct Resize {
  int in_w = 0, in_h = 0, out_w = 0, out_h = 0;
  Filter filter = Filter::bilinear;
  Rect window;
  // Pillow before 13 filters across first, always; Pillow 13 filters down first where that makes the image smaller
  // sooner. Each pass rounds to bytes, so the order shows in the last bit.
  bool may_go_down_first = true;
  bool operator==(const Resize&) const = default;
};

class Resizer {
 public:
  // Computes weights, unless the last job was the same, and returns the part of the input that will be read.
  Rect prepare(const Resize& job);
  // `part` holds that part. Rows go to `sink` in order.
  void run(const Pixels& part, RowSink& sink);

 private:
  void run_nearest(const Pixels& part, RowSink& sink);
  void run_across_first(const Pixels& part, RowSink& sink);
  void run_down_first(const Pixels& part, RowSink& sink);
  void filter_across(const std::uint8_t* in, std::ptrdiff_t in_stride, int rows, std::uint8_t* out,
                     std::ptrdiff_t out_stride) const;
  void filter_down(int y, const std::uint8_t* in, std::ptrdiff_t stride, int bytes, std::uint8_t* out) const;
  Pixels with_slack(const Pixels& rows, Buffer& copy) const;
  Resize job_;
  Rect part_;
  Weights across_, down_;
  kernels::BlendAcross blend_across_;
  bool blends_across_ = false, blends_down_ = false;
  std::vector<int> nearest_x_, nearest_y_;
  Buffer rows_, lines_, copy_;
};

const char* simd_name();

}  // namespace zcd
