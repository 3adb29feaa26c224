#pragma once

// What the fuzzing modes share: choices out of an input's head, exactly sized memory, programs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "core/program.h"

namespace zcd::fuzz {

constexpr std::size_t kHead = 64;
constexpr std::int64_t kLimit = 4'000'000;  // pixels: enough for any path, and still fast under sanitizers

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_image: %s\n", what);
  std::abort();
}

// The choices of the head; zero once they are used up.
class Choices {
 public:
  Choices(const std::uint8_t* p, std::size_t n) : p_(p), n_(n) {}
  int byte() {
    if (n_ == 0) return 0;
    --n_;
    return *p_++;
  }
  int word() {
    const int low = byte();
    return low | byte() << 8;
  }
  // 1 .. most, where small numbers are frequent: edges are there.
  int side(int most) {
    const int b = byte();
    return b < 64 ? 1 + b % std::min(most, 8) : 1 + word() % most;
  }
  bool flag() { return byte() & 1; }

 private:
  const std::uint8_t* p_;
  std::size_t n_;
};

// A heap block of exactly `n` bytes.
struct Block {
  explicit Block(std::size_t n) : size(n), data(new std::uint8_t[n]) {}
  Block(const std::uint8_t* from, std::size_t n) : Block(n) {
    if (n != 0) std::memcpy(data.get(), from, n);
  }
  // The bytes of `from`, again and again.
  static Block repeated(const std::uint8_t* from, std::size_t have, std::size_t n) {
    Block block(n);
    for (std::size_t i = 0; i < n; ++i) block.data[i] = have == 0 ? 0 : from[i % have];
    return block;
  }
  const std::uint8_t* end() const { return data.get() + size; }
  std::size_t size;
  std::unique_ptr<std::uint8_t[]> data;
};

inline Op choose_op(Choices& c) {
  Op op;
  op.kind = static_cast<OpKind>(c.byte() % 5);
  op.filter = static_cast<Filter>(c.byte() % 3);
  op.height = c.side(300);
  op.width = c.side(300);
  switch (op.kind) {
    case OpKind::random_resized_crop:
      op.scale_low = c.flag() ? 0.08 : 0.001;
      op.ratio_low = 0.5;
      op.ratio_high = 2.0;
      break;
    case OpKind::random_crop:
      for (int& p : op.padding) p = c.flag() ? c.byte() % 40 : 0;
      op.pad_if_needed = c.flag();
      op.fill = {1, 2, 3};
      break;
    case OpKind::resize:
      if (c.flag()) {
        op.width = 0;
        op.max_size = c.flag() ? op.height + 1 + c.byte() : 0;
      }
      break;
    case OpKind::horizontal_flip:
      op.probability = c.flag() ? 1.0 : 0.5;
      break;
    case OpKind::center_crop:
      break;
  }
  return op;
}

inline Program choose_program(Choices& c) {
  Program program;
  const int views = 1 + c.byte() % 3;
  for (int v = 0; v < views; ++v) {
    View view;
    const int ops = c.byte() % 4;
    for (int i = 0; i < ops; ++i) view.ops.push_back(choose_op(c));
    view.format.dtype = static_cast<Dtype>(c.byte() % 3);
    view.format.layout = c.flag() ? Layout::nhwc : Layout::nchw;
    if (view.format.dtype != Dtype::uint8) view.format.table.assign(3 * 256, 0x3c003c00u);
    program.views.push_back(std::move(view));
  }
  program.orient = c.flag();
  program.pixel_limit = kLimit;
  program.may_go_down_first = c.flag();
  return program;
}

// Gives the views the sizes that their last operations make, as the Python side does; other views get any.
inline void choose_sizes(Program& program, Choices& c) {
  for (View& view : program.views) {
    view.height = c.side(300);
    view.width = c.side(300);
    if (view.ops.empty() || view.ops.back().width == 0 || view.ops.back().kind == OpKind::horizontal_flip) continue;
    view.height = view.ops.back().height;
    view.width = view.ops.back().width;
  }
}

// The modes that have a file of their own.
void fuzz_encoded(Choices& c, const Block& body);

}  // namespace zcd::fuzz
