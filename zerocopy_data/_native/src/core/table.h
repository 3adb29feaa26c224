#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace zcd {

// One value of a column as it lies in a mapped shard.
struct Value {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  const std::uint8_t* readable_end = nullptr;  // end of the buffer it lies in
  std::uint32_t crc = 0;
  bool has_crc = false;
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
class Table {
 public:
  explicit Table(std::vector<std::int64_t> shard_starts);
  ~Table();
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

 private:
  struct Shard {
    std::vector<Chunk> chunks;
    std::vector<std::int64_t> starts;
  };
  std::vector<std::int64_t> starts_;
  std::vector<std::atomic<const Shard*>> shards_;
};

}  // namespace zcd
