#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/batch.h"

namespace zcd {

// What another decoder is told to do with one image: cut (y, x, height, width) out of the picture as it is stored, resize
// that as a whole to resized_height x resized_width, keep the view's fixed size of it from (top, left) on, mirror.
struct Geometry {
  std::int32_t y = 0, x = 0, height = 0, width = 0;
  std::int32_t resized_height = 0, resized_width = 0;
  std::int32_t top = 0, left = 0;
  std::int32_t flip = 0;
};
static_assert(sizeof(Geometry) == 9 * sizeof(std::int32_t));

// Encoded images in one block, and what is to be done with them.
struct EncodedBatch {
  std::uint8_t* block = nullptr;
  std::size_t capacity = 0;
  std::int64_t* offsets = nullptr;  // n + 1 of them: where each image begins in the block, and where the last ends
  Geometry* geometry = nullptr;     // n times the program's views
};

// Copies the images of samples (whose places do not count) into the block, one after another, and draws their parameters;
// one outcome each. One whose outcome is not `none` takes no bytes and has a geometry of zeros. `unsupported` asks for the
// CPU: the image is no JPEG, has to be turned upright, is of a kind that not every decoder takes or takes alike, or its
// operations are more than a Geometry says.
//
// Returns the bytes that the block must hold. Where that is more than its capacity some of them are missing in it, and the
// call is to be made again with a larger one; all else it gives is the same then.
std::size_t gather_encoded(const ImageColumn& column, const Program& program, const Picks& picks, std::uint64_t seed,
                           std::uint64_t epoch, const EncodedBatch& to, const std::atomic<bool>* cancel,
                           std::vector<Outcome>& outcomes);

}  // namespace zcd
