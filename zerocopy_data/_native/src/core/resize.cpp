#include "core/resize.h"

#include <algorithm>
#include <cstring>

#include "core/resize_kernels.h"

namespace zcd {
namespace {

// Input index of each output of Pillow's nearest resize (Geometry.c, ImagingScaleAffine): the position is accumulated,
// as there, because its rounding shows.
void nearest_indices(int in_size, int out_size, int first, int count, std::vector<int>& out) {
  const double step = static_cast<double>(in_size) / out_size;
  double at = step * 0.5;
  out.clear();
  for (int i = 0; i < first + count; ++i, at += step)
    if (i >= first) out.push_back(std::min(in_size - 1, static_cast<int>(at)));
}

// Rows of whole 32-byte blocks, and four bytes for the horizontal kernel's last store.
std::ptrdiff_t padded_stride(std::ptrdiff_t bytes) { return (bytes + 4 + 31) & ~std::ptrdiff_t{31}; }

}  // namespace

const char* simd_name() { return kernels::table().name; }

Rect Resizer::prepare(const Resize& job) {
  if (job == job_) return part_;
  job_ = {};  // should memory run out below, the next call must not take half-made weights for finished ones
  const Rect& win = job.window;
  if (job.filter == Filter::nearest) {
    nearest_indices(job.in_w, job.out_w, win.x, win.w, nearest_x_);
    nearest_indices(job.in_h, job.out_h, win.y, win.h, nearest_y_);
    part_ = {nearest_x_.front(), nearest_y_.front(), nearest_x_.back() + 1 - nearest_x_.front(),
             nearest_y_.back() + 1 - nearest_y_.front()};
    job_ = job;
    return part_;
  }
  across_.prepare(job.in_w, job.out_w, win.x, win.w, job.filter);
  down_.prepare(job.in_h, job.out_h, win.y, win.h, job.filter);
  // An axis that keeps its size is not filtered (Pillow's need_horizontal, need_vertical).
  const int x0 = across_.identity() ? win.x : across_.first_input();
  const int x1 = across_.identity() ? win.x + win.w : across_.last_input();
  const int y0 = down_.identity() ? win.y : down_.first_input();
  const int y1 = down_.identity() ? win.y + win.h : down_.last_input();
  part_ = {x0, y0, x1 - x0, y1 - y0};
  const bool can_blend = kernels::blend_table() != nullptr;
  blends_across_ = can_blend && !across_.identity() && across_.blends() && blend_across_.prepare(across_, x0);
  blends_down_ = can_blend && !down_.identity() && down_.blends();
  job_ = job;
  return part_;
}

void Resizer::filter_across(const std::uint8_t* in, std::ptrdiff_t in_stride, int rows, std::uint8_t* out,
                            std::ptrdiff_t out_stride) const {
  if (blends_across_)
    kernels::blend_table()->across(blend_across_, in, in_stride, rows, out, out_stride);
  else
    kernels::table().across(across_, part_.x, in, in_stride, rows, out, out_stride);
}

void Resizer::filter_down(int y, const std::uint8_t* in, std::ptrdiff_t stride, int bytes, std::uint8_t* out) const {
  if (blends_down_)
    kernels::blend_table()->down(kernels::blend_weight(down_, y), in, stride, bytes, out);
  else
    kernels::table().down(down_, y, in, stride, bytes, out);
}

void Resizer::run_nearest(const Pixels& part, RowSink& sink) {
  std::uint8_t* line = lines_.reserve(static_cast<std::size_t>(job_.window.w) * kChannels);
  for (int y = 0; y < job_.window.h; ++y) {
    const std::uint8_t* from = part.row(nearest_y_[static_cast<std::size_t>(y)] - part_.y);
    for (std::size_t x = 0; x < nearest_x_.size(); ++x)
      std::memcpy(line + x * kChannels, from + std::ptrdiff_t{nearest_x_[x] - part_.x} * kChannels, kChannels);
    sink.row(y, line);
  }
}

// The vertical pass reads 32 bytes at a time: rows that end too near to the end of somebody else's memory are copied.
Pixels Resizer::with_slack(const Pixels& rows, Buffer& copy) const {
  const std::ptrdiff_t bytes = std::ptrdiff_t{rows.w} * kChannels;
  if (rows.end - rows.row(rows.h - 1) >= bytes + 32) return rows;
  std::uint8_t* base = copy.reserve(static_cast<std::size_t>(bytes) * static_cast<std::size_t>(rows.h));
  for (int y = 0; y < rows.h; ++y) std::memcpy(base + bytes * y, rows.row(y), static_cast<std::size_t>(bytes));
  return {base, rows.w, rows.h, bytes, copy.end()};
}

void Resizer::run_across_first(const Pixels& part, RowSink& sink) {
  const int width = job_.window.w, bytes = width * kChannels;
  Pixels rows = part;
  if (!across_.identity()) {
    const std::ptrdiff_t stride = padded_stride(bytes);
    std::uint8_t* base = rows_.reserve(static_cast<std::size_t>(stride) * static_cast<std::size_t>(part.h));
    // As in with_slack, but the horizontal pass reads 16 bytes, and only the last rows can be near the end.
    int safe = part.h;
    while (safe > 0 && part.end - part.row(safe - 1) < std::ptrdiff_t{part.w} * kChannels + 16) --safe;
    filter_across(part.data, part.stride, safe, base, stride);
    for (int y = safe; y < part.h; ++y) {
      std::uint8_t* copy = copy_.reserve(static_cast<std::size_t>(part.w) * kChannels);
      std::memcpy(copy, part.row(y), static_cast<std::size_t>(part.w) * kChannels);
      filter_across(copy, 0, 1, base + stride * y, stride);
    }
    rows = {base, width, part.h, stride, rows_.end()};
  }
  if (down_.identity()) {
    for (int y = 0; y < job_.window.h; ++y) sink.row(y, rows.row(y));
    return;
  }
  rows = with_slack(rows, copy_);
  std::uint8_t* line = lines_.reserve(static_cast<std::size_t>(bytes));
  for (int y = 0; y < job_.window.h; ++y) {
    filter_down(y, rows.row(down_.begin(y) - part_.y), rows.stride, bytes, line);
    sink.row(y, line);
  }
}

void Resizer::run_down_first(const Pixels& part, RowSink& sink) {
  const Pixels rows = with_slack(part, copy_);
  const int bytes_in = part.w * kChannels;
  const std::ptrdiff_t in_stride = padded_stride(bytes_in), out_stride = padded_stride(job_.window.w * kChannels);
  std::uint8_t* tall = rows_.reserve(static_cast<std::size_t>(in_stride) * 4);
  std::uint8_t* lines = lines_.reserve(static_cast<std::size_t>(out_stride) * 4);
  for (int y = 0; y < job_.window.h; y += 4) {  // four rows are what the horizontal kernel works on at once
    const int count = std::min(4, job_.window.h - y);
    for (int r = 0; r < count; ++r)
      filter_down(y + r, rows.row(down_.begin(y + r) - part_.y), rows.stride, bytes_in, tall + in_stride * r);
    filter_across(tall, in_stride, count, lines, out_stride);
    for (int r = 0; r < count; ++r) sink.row(y + r, lines + out_stride * r);
  }
}

void Resizer::run(const Pixels& part, RowSink& sink) {
  if (job_.filter == Filter::nearest) return run_nearest(part, sink);
  // The rule of Pillow 13, found by comparing its results with both orders.
  const bool down_first = job_.may_go_down_first && !across_.identity() && job_.in_h > job_.out_h &&
                          job_.in_h - job_.out_h > 2 * (job_.in_w - job_.out_w);
  if (down_first)
    run_down_first(part, sink);
  else
    run_across_first(part, sink);
}

}  // namespace zcd
