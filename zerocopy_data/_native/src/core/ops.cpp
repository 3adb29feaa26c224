#include "core/ops.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/fault.h"

namespace zcd {
namespace {

// Python's round(): halves go to the even neighbour.
int round_even(double x) { return static_cast<int>(std::nearbyint(x)); }

// floor(n / 2) also below zero, as Python's //.
int half_floor(int n) { return (n - (n < 0 ? 1 : 0)) / 2; }

// torchvision.transforms.RandomResizedCrop.get_params: ten tries, then the largest centred crop within the ratios.
Rect random_resized_rect(const Op& op, int width, int height, Draws& draws) {
  const double area = static_cast<double>(width) * height;
  const double log_low = std::log(op.ratio_low), log_high = std::log(op.ratio_high);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * draws.uniform(op.scale_low, op.scale_high);
    const double aspect = std::exp(draws.uniform(log_low, log_high));
    const double wide = std::nearbyint(std::sqrt(target * aspect)), high = std::nearbyint(std::sqrt(target / aspect));
    if (wide >= 1 && wide <= width && high >= 1 && high <= height) {
      const int w = static_cast<int>(wide), h = static_cast<int>(high);
      const int y = draws.below(height - h + 1), x = draws.below(width - w + 1);
      return {x, y, w, h};
    }
  }
  const double ratio = static_cast<double>(width) / height;
  int w = width, h = height;
  if (ratio < op.ratio_low)
    h = std::clamp(round_even(w / op.ratio_low), 1, height);
  else if (ratio > op.ratio_high)
    w = std::clamp(round_even(h * op.ratio_high), 1, width);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

Rect random_crop_rect(const Op& op, int width, int height, Draws& draws) {
  auto [left, top, right, bottom] = op.padding;
  int w = width + left + right, h = height + top + bottom;
  if (op.pad_if_needed && w < op.width) {
    left += op.width - w;
    w += 2 * (op.width - w);
  }
  if (op.pad_if_needed && h < op.height) {
    top += op.height - h;
    h += 2 * (op.height - h);
  }
  if (w < op.width || h < op.height)
    throw Fault(FaultKind::misfit, "RandomCrop of " + std::to_string(op.height) + "x" + std::to_string(op.width) +
                                        " is larger than the image of " + std::to_string(h) + "x" + std::to_string(w) +
                                        " (height x width); use pad_if_needed=True or Resize first");
  const int y = draws.below(h - op.height + 1), x = draws.below(w - op.width + 1);
  return {x - left, y - top, op.width, op.height};
}

// torchvision.transforms.functional.center_crop: smaller images are padded with zeros.
Rect center_rect(const Op& op, int width, int height) {
  const auto start = [](int size, int crop) {
    return crop > size ? -half_floor(crop - size) : round_even((size - crop) / 2.0);
  };
  return {start(width, op.width), start(height, op.height), op.width, op.height};
}

// torchvision.transforms.functional._compute_resized_image_output_size.
Rect resized(const Op& op, int width, int height) {
  if (op.width > 0) return {0, 0, op.width, op.height};
  const int small = std::min(width, height), large = std::max(width, height);
  int new_small = op.height;
  auto new_large = static_cast<std::int64_t>(static_cast<double>(std::int64_t{op.height} * large) / small);
  if (op.max_size > 0 && new_large > op.max_size) {
    new_small = static_cast<int>(static_cast<double>(std::int64_t{op.max_size} * new_small) /
                                 static_cast<double>(new_large));
    new_large = op.max_size;
  }
  if (new_small < 1 || new_large > 65535)
    throw Fault(FaultKind::misfit, "Resize would make " + std::to_string(new_large) + "x" + std::to_string(new_small) +
                                        " pixels of " + std::to_string(width) + "x" + std::to_string(height));
  const int l = static_cast<int>(new_large);
  return width <= height ? Rect{0, 0, new_small, l} : Rect{0, 0, l, new_small};
}

}  // namespace

std::vector<Step> resolve(const std::vector<Op>& ops, int width, int height, const Key& key, std::uint32_t view) {
  std::vector<Step> steps;
  int w = width, h = height;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    Draws draws(key, view << 16 | static_cast<std::uint32_t>(i));
    switch (op.kind) {
      case OpKind::random_resized_crop:
        steps.push_back({Step::Kind::crop, random_resized_rect(op, w, h, draws), op.filter, {}});
        steps.push_back({Step::Kind::resize, {0, 0, op.width, op.height}, op.filter, {}});
        break;
      case OpKind::random_crop:
        steps.push_back({Step::Kind::crop, random_crop_rect(op, w, h, draws), op.filter, op.fill});
        break;
      case OpKind::center_crop:
        steps.push_back({Step::Kind::crop, center_rect(op, w, h), op.filter, {}});
        break;
      case OpKind::resize:
        steps.push_back({Step::Kind::resize, resized(op, w, h), op.filter, {}});
        break;
      case OpKind::horizontal_flip:
        if (draws.uniform() < op.probability) steps.push_back({Step::Kind::flip, {}, op.filter, {}});
        continue;
    }
    w = steps.back().rect.w;
    h = steps.back().rect.h;
  }
  return steps;
}

namespace {

Stage fresh(int w, int h) {
  Stage s;
  s.source = s.window = {0, 0, w, h};
  s.out_w = w;
  s.out_h = h;
  return s;
}

bool untouched(const Stage& s, int w, int h) {
  return !s.resize && !s.flip && !s.padded && s.source == Rect{0, 0, w, h};
}

}  // namespace

std::vector<Stage> fuse(const std::vector<Step>& steps, int width, int height) {
  std::vector<Stage> stages;
  int in_w = width, in_h = height;  // the image that `now` starts from
  Stage now = fresh(width, height);
  const auto flush = [&] {
    stages.push_back(now);
    in_w = now.window.w;
    in_h = now.window.h;
    now = fresh(in_w, in_h);
  };
  for (const Step& step : steps) {
    const int w = now.window.w, h = now.window.h;
    switch (step.kind) {
      case Step::Kind::flip:
        now.flip = !now.flip;
        break;
      case Step::Kind::crop: {
        Rect r = step.rect;
        const bool inside = r.x >= 0 && r.y >= 0 && r.x <= w - r.w && r.y <= h - r.h;
        if (!inside) {
          if (!untouched(now, in_w, in_h)) flush();
          now.source = r;
          now.window = {0, 0, r.w, r.h};
          now.out_w = r.w;
          now.out_h = r.h;
          now.padded = true;
          now.fill = step.fill;
          break;
        }
        if (now.flip) r.x = w - r.x - r.w;
        if (now.resize) {
          now.window = {now.window.x + r.x, now.window.y + r.y, r.w, r.h};
        } else {
          now.source = {now.source.x + r.x, now.source.y + r.y, r.w, r.h};
          now.window = {0, 0, r.w, r.h};
          now.out_w = r.w;
          now.out_h = r.h;
        }
        break;
      }
      case Step::Kind::resize:
        if (step.rect.w == w && step.rect.h == h) break;
        // Weights of a mirrored image need not be the mirrored weights to the last bit: so no resize after a flip.
        if (now.resize || now.flip || now.padded) flush();
        now.resize = true;
        now.filter = step.filter;
        now.out_w = step.rect.w;
        now.out_h = step.rect.h;
        now.window = {0, 0, step.rect.w, step.rect.h};
        break;
    }
  }
  stages.push_back(now);
  return stages;
}

}  // namespace zcd
