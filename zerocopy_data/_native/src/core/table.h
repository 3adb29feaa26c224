#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/image.h"

namespace zcd {

// One value of a column, as it lies in a mapped shard or was read from a file.
struct Value {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  const std::uint8_t* readable_end = nullptr;  // end of the buffer it lies in
  std::uint32_t crc = 0;
  bool has_crc = false;
};

// Where values come from. Read by many threads at once.
class Values {
 public:
  virtual ~Values() = default;
  // The value of a row; one that has no memory of its own is put into `room`, and is good until `room` is used again.
  virtual Value read(std::int64_t row, Buffer& room) const = 0;
};

// One row group of a column: `rows` values of `fixed` bytes each, or between neighbouring offsets.
struct Chunk {
  std::int64_t rows = 0;
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  const void* offsets = nullptr;  // rows + 1 of them; null for values of fixed size
  bool wide = false;              // 64-bit offsets
  std::size_t fixed = 0;
  const std::uint32_t* crcs = nullptr;  // rows of them, or null

  // Throws Fault(damaged) when the offsets leave the data: they come from disk.
  Value at(std::int64_t row) const;
  // Throws when the buffers are shorter than `rows` needs.
  void check(std::size_t offsets_size, std::size_t crcs_size) const;
};

// A column over all shards of a dataset; shards come in as they are mapped, while readers are at work.
class Table final : public Values {
 public:
  explicit Table(std::vector<std::int64_t> shard_starts);
  ~Table() override;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  std::int64_t rows() const { return starts_.back(); }
  std::int64_t shards() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  bool has(std::int64_t shard) const;
  // Takes effect at once for every thread; a shard that is there already stays. Throws std::invalid_argument when the
  // chunks' rows don't add up.
  void set(std::int64_t shard, std::vector<Chunk> chunks);
  std::int64_t shard_of(std::int64_t row) const;  // row must be within rows()
  Value at(std::int64_t row) const;
  Value read(std::int64_t row, Buffer&) const override { return at(row); }

 private:
  struct Shard {
    std::vector<Chunk> chunks;
    std::vector<std::int64_t> starts;
  };
  std::vector<std::int64_t> starts_;
  std::vector<std::atomic<const Shard*>> shards_;
};

}  // namespace zcd
