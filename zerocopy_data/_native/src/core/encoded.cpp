#include "core/encoded.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

namespace zcd {
namespace {

// The filter of the operation that resizes; of the last one, where there are several.
std::optional<Filter> resizing_filter(const View& view) {
  std::optional<Filter> filter;
  for (const Op& op : view.ops)
    if (op.kind == OpKind::resize || op.kind == OpKind::random_resized_crop) filter = op.filter;
  return filter;
}

bool inside(const Rect& r, int w, int h) {
  return r.x >= 0 && r.y >= 0 && r.w > 0 && r.h > 0 && r.x <= w - r.w && r.y <= h - r.h;
}

// Throws Fault(unsupported) where `stages` are more than one cut, one resize and one window.
Geometry simple(const View& view, const std::vector<Stage>& stages, int width, int height) {
  const Stage& s = stages.front();
  if (stages.size() != 1 || s.padded) throw Fault(FaultKind::unsupported, "its operations are for the CPU");
  if (s.resize && s.filter != resizing_filter(view))
    throw Fault(FaultKind::unsupported, "its resize is another than the batch's");
  // Said in words by whoever decodes it.
  if (s.window.w != view.width || s.window.h != view.height || !inside(s.source, width, height) ||
      !inside(s.window, s.out_w, s.out_h))
    throw Fault(FaultKind::unsupported, "it comes out in another size than the batch's");
  return {s.source.y, s.source.x, s.source.h, s.source.w, s.out_h, s.out_w, s.window.y, s.window.x, s.flip ? 1 : 0};
}

// What decoders differ about, or do not notice, is left to our own.
void check_usual(const JpegHeader& header, const Value& value) {
  if (header.orientation != 1) throw Fault(FaultKind::unsupported, "has to be turned upright");
  if (!header.usual) throw Fault(FaultKind::unsupported, "stores RGB, or is coded arithmetically");
  // A file without its end marker may be cut short, and another decoder may fill up what is missing.
  if (value.size < 2 || value.data[value.size - 2] != 0xff || value.data[value.size - 1] != 0xd9)
    throw Fault(FaultKind::unsupported, "has no end marker at its end");
}

}  // namespace

std::size_t gather_encoded(const ImageColumn& column, const Program& program, const Picks& picks, std::uint64_t seed,
                           std::uint64_t epoch, const EncodedBatch& to, const std::atomic<bool>* cancel,
                           std::vector<Outcome>& outcomes) {
  const std::int64_t n = picks.n;
  const std::size_t views = program.views.size();
  Scratch& scratch = thread_scratch();
  outcomes.assign(static_cast<std::size_t>(n), {});
  std::size_t needed = 0;
  to.offsets[0] = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
    Geometry* geometry = to.geometry + static_cast<std::size_t>(i) * views;
    std::fill_n(geometry, views, Geometry{});
    try {
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) throw Fault(FaultKind::cancelled, "cancelled");
      const Value value = column.values->read(picks.rows[i], scratch.file);
      if (column.verify) ValueSum(value).finish();
      const JpegHeader header = scratch.reader.open(value.data, value.size, program.orient, program.pixel_limit);
      check_usual(header, value);
      const int width = header.width(), height = header.height();
      const Recipe recipe = prepare(program, width, height, picks.key(i, seed, epoch));
      for (std::size_t v = 0; v < views; ++v) geometry[v] = simple(program.views[v], recipe[v], width, height);
      if (value.size > SIZE_MAX - needed) throw Fault(FaultKind::damaged, "a batch of more bytes than there are");
      if (needed <= to.capacity && value.size <= to.capacity - needed)
        std::memcpy(to.block + needed, value.data, value.size);
      needed += value.size;
    } catch (const Fault& fault) {
      outcome = {fault.kind, fault.what()};
    } catch (const std::exception& error) {
      outcome = {FaultKind::damaged, error.what()};
    }
    // A later view may have refused what an earlier one had taken.
    if (outcome.kind != FaultKind::none) std::fill_n(geometry, views, Geometry{});
    to.offsets[i + 1] = static_cast<std::int64_t>(needed);
  }
  scratch.trim();
  return needed;
}

}  // namespace zcd
