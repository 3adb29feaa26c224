#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/jpeg.h"

namespace zcd {

// The size with the longer side at most `max_side`, the shorter one rounded, never below a pixel.
std::pair<int, int> shrunk_size(int width, int height, int max_side);

struct Transcoded {
  const std::vector<std::uint8_t>* bytes;  // valid until the thread's next call
  int width, height;
};

// Decodes, shrinks (Pillow's bilinear), encodes.
Transcoded transcode(const std::uint8_t* data, std::size_t size, int max_side, int quality, bool orient,
                     std::int64_t pixel_limit);

}  // namespace zcd
