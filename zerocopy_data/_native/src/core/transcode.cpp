#include "core/transcode.h"

#include <algorithm>
#include <cmath>

#include "core/program.h"

namespace zcd {

std::pair<int, int> shrunk_size(int width, int height, int max_side) {
  const int side = std::max(width, height);
  if (side <= max_side) return {width, height};
  const double scale = static_cast<double>(max_side) / side;
  const auto shrink = [&](int n) { return n == side ? max_side : std::max(1, static_cast<int>(std::lround(n * scale))); };
  return {shrink(width), shrink(height)};
}

Transcoded transcode(const std::uint8_t* data, std::size_t size, int max_side, int quality, bool orient,
                     std::int64_t pixel_limit) {
  thread_local JpegWriter writer;
  Scratch& scratch = thread_scratch();
  const JpegHeader header = scratch.reader.open(data, size, orient, pixel_limit);
  const int w = header.width(), h = header.height();
  const auto [new_w, new_h] = shrunk_size(w, h, max_side);
  Pixels pixels = scratch.reader.decode({0, 0, w, h}, scratch.stored, scratch.oriented);
  if (new_w != w || new_h != h) {
    scratch.resizer.prepare({w, h, new_w, new_h, Filter::bilinear, {0, 0, new_w, new_h}, true});
    const std::ptrdiff_t stride = std::ptrdiff_t{new_w} * kChannels;
    std::uint8_t* base = scratch.stage[0].reserve(static_cast<std::size_t>(stride) * static_cast<std::size_t>(new_h));
    BytesSink sink(base, new_w, stride, false);
    scratch.resizer.run(pixels, sink);
    pixels = {base, new_w, new_h, stride, scratch.stage[0].end()};
  }
  const auto& bytes = writer.encode(pixels, quality);
  scratch.trim();
  return {&bytes, new_w, new_h};
}

}  // namespace zcd
