#pragma once

#include <cstdint>
#include <vector>

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
  // Whether every output is a mean of two neighbours, or one input: at most two taps, none negative, which sum to one.
  bool blends() const { return blends_; }

 private:
  int count_ = 0;
  bool identity_ = false, blends_ = false;
  std::size_t tap_stride_ = 0, pair_stride_ = 0;
  std::vector<std::int32_t> bounds_;
  std::vector<std::int32_t> fixed_;
  std::vector<std::uint32_t> pairs_;
  std::vector<double> real_;
};

}  // namespace zcd
