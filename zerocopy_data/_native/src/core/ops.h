#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/image.h"
#include "core/random.h"
#include "core/resize.h"

namespace zcd {

enum class OpKind : std::uint8_t { random_resized_crop, random_crop, center_crop, resize, horizontal_flip };

// An operation as the user declared it. Which members count depends on `kind`; the Python side fills and checks them.
struct Op {
  OpKind kind = OpKind::resize;
  int height = 0, width = 0;                  // the size asked for; resize: width 0 means "shorter side = height"
  int max_size = 0;                           // resize by shorter side: limit of the longer one, 0 for none
  double scale_low = 0, scale_high = 1;       // random_resized_crop: share of the area
  double ratio_low = 1, ratio_high = 1;       // random_resized_crop: width / height
  double probability = 0.5;                   // horizontal_flip
  std::array<int, 4> padding{0, 0, 0, 0};     // random_crop: left, top, right, bottom
  bool pad_if_needed = false;                 // random_crop
  std::array<std::uint8_t, 3> fill{0, 0, 0};  // random_crop's padding
  Filter filter = Filter::bilinear;
};

// What an operation does to one sample once its random numbers are drawn.
struct Step {
  enum class Kind : std::uint8_t { crop, resize, flip } kind;
  Rect rect;  // crop: may reach outside the image; resize: w and h only
  Filter filter = Filter::bilinear;
  std::array<std::uint8_t, 3> fill{0, 0, 0};
};

// Draws the parameters of `ops` for one sample of width x height pixels, with torchvision's distributions.
// Throws Fault when an operation does not fit the image.
std::vector<Step> resolve(const std::vector<Op>& ops, int width, int height, const Key& key, std::uint32_t view);

// One pass over pixels: cut `source`, resize it as a whole to out_w x out_h, keep `window` of that, mirror.
struct Stage {
  Rect source;
  bool resize = false;
  int out_w = 0, out_h = 0;
  Filter filter = Filter::bilinear;
  Rect window;
  bool flip = false;
  bool padded = false;  // source reaches outside: filled with `fill`; such a stage does not resize
  std::array<std::uint8_t, 3> fill{0, 0, 0};
};

// Joins steps into as few stages as keep every byte the same: usually one.
std::vector<Stage> fuse(const std::vector<Step>& steps, int width, int height);

}  // namespace zcd
