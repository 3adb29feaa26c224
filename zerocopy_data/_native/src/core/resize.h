#pragma once

#include <cstdint>
#include <vector>

#include "core/image.h"

namespace zcd {

enum class Filter : std::uint8_t { nearest, bilinear, bicubic };

// Pillow's weights along one axis, for outputs [first, first + count) of `out_size` (Pillow: Resample.c,
// precompute_coeffs and normalize_coeffs_8bpc). Widened when shrinking: that is its antialiasing.
class Weights {
 public:
  void prepare(int in_size, int out_size, int first, int count, Filter filter);

  int count() const { return count_; }
  int begin(int i) const { return bounds_[2 * static_cast<std::size_t>(i)]; }
  int taps(int i) const { return bounds_[2 * static_cast<std::size_t>(i) + 1]; }
  int first_input() const;  // the inputs that any output of the window reads
  int last_input() const;
  // For each pair of taps two words: the lower 15 bits of both weights, and their upper parts. A weight is
  // low + (high << 15), so that 16-bit multiply-add instructions give the exact 32-bit sum. Zero-padded to four taps.
  const std::uint32_t* pairs(int i) const { return pairs_.data() + static_cast<std::size_t>(i) * pair_stride_; }
  const std::int32_t* fixed(int i) const { return fixed_.data() + static_cast<std::size_t>(i) * tap_stride_; }
  bool identity() const { return identity_; }

 private:
  int count_ = 0;
  bool identity_ = false;
  std::size_t tap_stride_ = 0, pair_stride_ = 0;
  std::vector<std::int32_t> bounds_;
  std::vector<std::int32_t> fixed_;
  std::vector<std::uint32_t> pairs_;
  std::vector<double> real_;
};

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
  Pixels with_slack(const Pixels& rows, Buffer& copy) const;
  Resize job_;
  Rect part_;
  Weights across_, down_;
  std::vector<int> nearest_x_, nearest_y_;
  Buffer rows_, lines_, copy_;
};

const char* simd_name();

}  // namespace zcd
