#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>

#include "bindings/arguments.h"
#include "core/batch.h"
#include "core/files.h"

namespace zcd::py {

using Rows = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// What the core is given of a batch: rows, and for each a key of its random numbers (or None: the row) and a place in the
// output (or None: that of its turn). Throws where the lengths differ, or a place is outside `room`.
inline Picks picks(const Rows& rows, const std::optional<Rows>& keys, const std::optional<Rows>& places, std::size_t room) {
  const std::size_t n = rows.shape(0);
  if ((keys && keys->shape(0) != n) || (places && places->shape(0) != n))
    throw std::invalid_argument("each row has one key and one place");
  if (places) {
    for (std::size_t i = 0; i < n; ++i)
      if (places->data()[i] < 0 || static_cast<std::size_t>(places->data()[i]) >= room)
        throw std::invalid_argument("a place is outside the output buffer");
  } else if (n > room) {
    throw std::invalid_argument("the output buffer is too small for the rows");
  }
  return {rows.data(), static_cast<std::int64_t>(n), keys ? keys->data() : nullptr, places ? places->data() : nullptr};
}

// A column's native table together with the Python objects whose memory it points into.
class Column {
 public:
  Column(std::vector<std::int64_t> starts, int raw_width, int raw_height, bool verify) : table_(std::move(starts)) {
    const bool sized = raw_width >= 1 && raw_height >= 1 && raw_width <= 65535 && raw_height <= 65535;
    if (!sized && (raw_width != 0 || raw_height != 0))
      throw std::invalid_argument("raw images have 1 to 65535 pixels a side; 0 and 0 for encoded ones");
    column_ = {&table_, raw_width, raw_height, verify};
  }

  // chunks: (rows, data, offsets or None, wide, fixed bytes, crcs or None)
  using Part = std::tuple<std::int64_t, nb::object, std::optional<nb::object>, bool, std::size_t, std::optional<nb::object>>;
  void set_shard(std::int64_t shard, const std::vector<Part>& parts) {
    std::vector<Chunk> chunks;
    std::vector<std::unique_ptr<BufferView>> views;
    for (const auto& [rows, data, offsets, wide, fixed, crcs] : parts) {
      Chunk c;
      c.rows = rows;
      views.push_back(std::make_unique<BufferView>(data));
      c.data = views.back()->data();
      c.size = views.back()->size();
      c.wide = wide;
      c.fixed = fixed;
      std::size_t offsets_size = 0, crcs_size = 0;
      if (offsets) {
        views.push_back(std::make_unique<BufferView>(*offsets));
        c.offsets = views.back()->data();
        offsets_size = views.back()->size();
      }
      if (crcs) {
        views.push_back(std::make_unique<BufferView>(*crcs));
        c.crcs = reinterpret_cast<const std::uint32_t*>(views.back()->data());
        crcs_size = views.back()->size();
      }
      c.check(offsets_size, crcs_size);
      chunks.push_back(c);
    }
    if (table_.has(shard)) return;
    table_.set(shard, std::move(chunks));
    for (auto& v : views) views_.push_back(std::move(v));
  }

  const Table& table() const { return table_; }
  const ImageColumn& image() const { return column_; }
  void check(const Rows& rows) const {
    if (!missing(rows).empty()) throw std::invalid_argument("a shard of these rows has not been mapped");
  }

  // Shards of `rows` that have not been mapped, each once. Checks that all rows exist.
  std::vector<std::int64_t> missing(const Rows& rows) const {
    std::vector<std::int64_t> out;
    std::vector<bool> seen(static_cast<std::size_t>(table_.shards()), false);
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
      const std::int64_t row = rows.data()[i];
      if (row < 0 || row >= table_.rows())
        throw nb::index_error(("row " + std::to_string(row) + " of " + std::to_string(table_.rows())).c_str());
      const std::int64_t s = table_.shard_of(row);
      if (!seen[static_cast<std::size_t>(s)] && !table_.has(s)) out.push_back(s);
      seen[static_cast<std::size_t>(s)] = true;
    }
    return out;
  }

 private:
  Table table_;
  ImageColumn column_;
  std::vector<std::unique_ptr<BufferView>> views_;
};

// A list of files together with the Python objects whose memory it points into.
class FileColumn {
 public:
  FileColumn(const nb::bytes& prefix, nb::handle paths, const Rows& offsets, std::optional<Rows> rows)
      : paths_(paths), offsets_(offsets), rows_(std::move(rows)), files_(list(prefix), paths_.size()) {
    column_ = {&files_, 0, 0, false};
  }

  const Files& files() const { return files_; }
  const ImageColumn& image() const { return column_; }
  void check(const Rows& rows) const {
    for (std::size_t i = 0; i < rows.shape(0); ++i)
      if (!files_.has(rows.data()[i]))
        throw nb::index_error(("row " + std::to_string(rows.data()[i]) + " is not in the list of files").c_str());
  }

 private:
  PathList list(const nb::bytes& prefix) const {
    if (offsets_.shape(0) == 0 || (rows_ && rows_->shape(0) + 1 != offsets_.shape(0)))
      throw std::invalid_argument("a list of files has one offset more than it has rows");
    return {std::string(prefix.c_str(), prefix.size()), reinterpret_cast<const char*>(paths_.data()), offsets_.data(),
            static_cast<std::int64_t>(offsets_.shape(0)) - 1, rows_ ? rows_->data() : nullptr};
  }
  BufferView paths_;
  Rows offsets_;
  std::optional<Rows> rows_;
  Files files_;
  ImageColumn column_;
};

struct Cancel {
  std::atomic<bool> flag{false};
};

inline nb::list outcomes_list(const std::vector<Outcome>& outcomes) {
  nb::list faults;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].kind != FaultKind::none)
      faults.append(nb::make_tuple(i, static_cast<int>(outcomes[i].kind), outcomes[i].message));
  return faults;
}

}  // namespace zcd::py
