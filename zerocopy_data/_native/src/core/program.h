#pragma once

#include <cstdint>
#include <vector>

#include "core/jpeg.h"
#include "core/ops.h"
#include "core/sink.h"
#include "core/value_sum.h"

namespace zcd {

// One output of a sample: operations and the form of the result. Several views share one decode.
struct View {
  std::vector<Op> ops;
  Format format;
  int height = 0, width = 0;  // the size every sample comes out with; 0 where it depends on the image
};

struct Program {
  std::vector<View> views;
  bool orient = true;
  std::int64_t pixel_limit = kPixelLimit;
  bool may_go_down_first = true;  // see Resize
};

// What a thread keeps between samples: memory that is already faulted in, and libjpeg's state.
struct Scratch {
  JpegReader reader;
  Resizer resizer;
  Buffer stored, oriented, stage[2], line, file;
  void trim();
};
Scratch& thread_scratch();

// The stages of all views for one sample of a given size.
using Recipe = std::vector<std::vector<Stage>>;
Recipe prepare(const Program& program, int width, int height, const Key& key);
// Width and height of a view's result.
inline std::pair<int, int> result_size(const std::vector<Stage>& stages) {
  return {stages.back().window.w, stages.back().window.h};
}

// Makes one sample of a JPEG or of RGB pixels. `outs[v]` is where view v goes, dense, of format.bytes(w, h).
// `sized` says that the program's fixed sizes bind (a batch): a view that comes out otherwise throws. `stream`: what is
// only copied goes past the caches (see FormatSink).
class Sample {
 public:
  Sample(const Program& program, Scratch& scratch) : program_(program), scratch_(scratch) {}
  void open_jpeg(const std::uint8_t* data, std::size_t size);
  // `sum`, if any, is of the value that these pixels are; run() finishes it, and throws what it throws.
  void open_pixels(const Pixels& pixels, ValueSum* sum = nullptr);
  // Draws parameters; the sizes of the results are known afterwards.
  const Recipe& plan(const Key& key);
  void run(std::uint8_t* const* outs, bool sized, bool stream = false);

 private:
  Rect needed(const Stage& stage);
  Resize job(const Stage& stage) const;
  void run_view(const std::vector<Stage>& stages, const Pixels& source, int offset_x, int offset_y, const Format& format,
                std::uint8_t* out, bool stream);

  const Program& program_;
  Scratch& scratch_;
  bool jpeg_ = false;
  int width_ = 0, height_ = 0;
  Pixels pixels_;
  ValueSum* sum_ = nullptr;
  Recipe recipe_;
};

}  // namespace zcd
