#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace zcd {

struct Rect {
  int x = 0, y = 0, w = 0, h = 0;
  bool operator==(const Rect&) const = default;
};

constexpr int kChannels = 3;

// SIMD loads of 16 bytes start at any pixel, so they reach past the last one by up to 13 bytes;
// 32-byte loads of the vertical pass by up to 31. Buffers of ours are that much longer.
constexpr std::size_t kSlack = 64;

// RGB pixels that somebody else owns. `end` is one past the last byte that may be read.
struct Pixels {
  const std::uint8_t* data = nullptr;
  int w = 0, h = 0;
  std::ptrdiff_t stride = 0;
  const std::uint8_t* end = nullptr;

  const std::uint8_t* row(int y) const { return data + stride * y; }
};

// Scratch memory that only grows, so that a thread faults its pages in once. Contents are not kept on growth.
class Buffer {
 public:
  std::uint8_t* reserve(std::size_t bytes) {
    if (bytes + kSlack > capacity_) {
      const std::size_t rounded = (bytes + kSlack + 4095) & ~std::size_t{4095};
      data_.reset();
      capacity_ = 0;
      data_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(4096, rounded)));
      if (!data_) throw std::bad_alloc();
      capacity_ = rounded;
    }
    return data_.get();
  }
  const std::uint8_t* end() const { return data_.get() + capacity_; }
  // One huge image must not stay in every thread's scratch for the rest of a month-long run.
  void trim(std::size_t limit) {
    if (capacity_ > limit) {
      data_.reset();
      capacity_ = 0;
    }
  }

 private:
  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace zcd
