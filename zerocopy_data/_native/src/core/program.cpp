#include "core/program.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace zcd {
namespace {

// Scratch of one thread after an image of ordinary size: beyond it memory is given back.
constexpr std::size_t kKeep = 64u << 20;

Rect join(const Rect& a, const Rect& b) {
  const int x0 = std::min(a.x, b.x), y0 = std::min(a.y, b.y);
  const int x1 = std::max(a.x + a.w, b.x + b.w), y1 = std::max(a.y + a.h, b.y + b.h);
  return {x0, y0, x1 - x0, y1 - y0};
}

Rect clip(const Rect& r, int w, int h) {
  const int x0 = std::clamp(r.x, 0, w), y0 = std::clamp(r.y, 0, h);
  const int x1 = std::clamp(r.x + r.w, 0, w), y1 = std::clamp(r.y + r.h, 0, h);
  return {x0, y0, x1 - x0, y1 - y0};
}

Pixels part(const Pixels& p, const Rect& r) {
  return {p.data + p.stride * r.y + std::ptrdiff_t{r.x} * kChannels, r.w, r.h, p.stride, p.end};
}

void run_padded(const Stage& stage, const Pixels& source, RowSink& sink, Buffer& line_buffer) {
  const int w = stage.window.w;
  std::uint8_t* line = line_buffer.reserve(static_cast<std::size_t>(w) * kChannels);
  const Rect at{stage.source.x + stage.window.x, stage.source.y + stage.window.y, w, stage.window.h};
  const Rect inside = clip(at, source.w, source.h);
  for (int y = 0; y < at.h; ++y) {
    for (int x = 0; x < w; ++x) std::memcpy(line + std::ptrdiff_t{x} * kChannels, stage.fill.data(), kChannels);
    const int sy = at.y + y;
    if (sy >= 0 && sy < source.h && inside.w > 0)
      std::memcpy(line + std::ptrdiff_t{inside.x - at.x} * kChannels, source.row(sy) + std::ptrdiff_t{inside.x} * kChannels,
                  static_cast<std::size_t>(inside.w) * kChannels);
    sink.row(y, line);
  }
}

}  // namespace

void Scratch::trim() {
  stored.trim(kKeep);
  oriented.trim(kKeep);
  stage[0].trim(kKeep);
  stage[1].trim(kKeep);
  file.trim(kKeep);
}

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

Recipe prepare(const Program& program, int width, int height, const Key& key) {
  Recipe recipe;
  for (std::size_t v = 0; v < program.views.size(); ++v)
    recipe.push_back(fuse(resolve(program.views[v].ops, width, height, key, static_cast<std::uint32_t>(v)), width, height));
  return recipe;
}

void Sample::open_jpeg(const std::uint8_t* data, std::size_t size) {
  const JpegHeader header = scratch_.reader.open(data, size, program_.orient, program_.pixel_limit);
  jpeg_ = true;
  sum_ = nullptr;
  width_ = header.width();
  height_ = header.height();
}

void Sample::open_pixels(const Pixels& pixels, ValueSum* sum) {
  jpeg_ = false;
  sum_ = sum;
  pixels_ = pixels;
  width_ = pixels.w;
  height_ = pixels.h;
}

const Recipe& Sample::plan(const Key& key) {
  recipe_ = prepare(program_, width_, height_, key);
  return recipe_;
}

Resize Sample::job(const Stage& s) const {
  return {s.source.w, s.source.h, s.out_w, s.out_h, s.filter, s.window, program_.may_go_down_first};
}

// The pixels of the image that a first stage reads.
Rect Sample::needed(const Stage& stage) {
  // A padded stage clips against the picture's own edges, so it must see where they are.
  if (stage.padded) return {0, 0, width_, height_};
  if (!stage.resize) return stage.source;
  Rect r = scratch_.resizer.prepare(job(stage));
  r.x += stage.source.x;
  r.y += stage.source.y;
  return r;
}

void Sample::run_view(const std::vector<Stage>& stages, const Pixels& first, int offset_x, int offset_y,
                      const Format& format, std::uint8_t* out, bool stream) {
  Pixels source = first;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Stage stage = stages[i];
    const int w = stage.window.w, h = stage.window.h;
    const bool last = i + 1 == stages.size();
    if (i == 0) {  // `first` is a part of the image that begins at the offset
      stage.source.x -= offset_x;
      stage.source.y -= offset_y;
    }
    const bool copied = !stage.resize && !stage.padded;
    // What is copied is summed row by row; a resize reads rows more than once and is better off with all at hand.
    if (i == 0 && sum_ != nullptr && !copied) sum_->finish();
    const auto execute = [&](RowSink& sink) {
      if (stage.padded) {
        run_padded(stage, source, sink, scratch_.line);
      } else if (stage.resize) {
        Rect r = scratch_.resizer.prepare(job(stage));
        r.x += stage.source.x;
        r.y += stage.source.y;
        scratch_.resizer.run(part(source, r), sink);
      } else {
        const Pixels p = part(source, stage.source);
        for (int y = 0; y < h; ++y) {
          if (i == 0 && sum_ != nullptr) sum_->reach(p.row(y) + std::ptrdiff_t{p.w} * kChannels);
          sink.row(y, p.row(y));
        }
      }
    };
    if (last) {
      FormatSink sink(format, w, h, stage.flip, out, stream && copied);
      execute(sink);
    } else {
      Buffer& buffer = scratch_.stage[i % 2];
      const std::ptrdiff_t stride = std::ptrdiff_t{w} * kChannels;
      std::uint8_t* base = buffer.reserve(static_cast<std::size_t>(stride) * static_cast<std::size_t>(h));
      BytesSink sink(base, w, stride, stage.flip);
      execute(sink);
      source = {base, w, h, stride, buffer.end()};
    }
  }
}

void Sample::run(std::uint8_t* const* outs, bool sized, bool stream) {
  for (std::size_t v = 0; v < recipe_.size(); ++v) {
    const auto [w, h] = result_size(recipe_[v]);
    const View& view = program_.views[v];
    if (sized && (w != view.width || h != view.height))
      throw Fault(FaultKind::misfit, "came out as " + std::to_string(h) + "x" + std::to_string(w) +
                                          ", the batch needs " + std::to_string(view.height) + "x" +
                                          std::to_string(view.width) + " (height x width)");
  }
  Pixels source = pixels_;
  Rect region{0, 0, width_, height_};
  if (jpeg_) {
    region = needed(recipe_[0].front());
    for (std::size_t v = 1; v < recipe_.size(); ++v) region = join(region, needed(recipe_[v].front()));
    source = scratch_.reader.decode(region, scratch_.stored, scratch_.oriented);
  }
  for (std::size_t v = 0; v < recipe_.size(); ++v)
    run_view(recipe_[v], source, region.x, region.y, program_.views[v].format, outs[v], stream);
  if (sum_ != nullptr) sum_->finish();
}

}  // namespace zcd
