#include "core/table.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/fault.h"

namespace zcd {

Value Chunk::at(std::int64_t row) const {
  Value v;
  if (offsets == nullptr) {
    v.data = data + fixed * static_cast<std::size_t>(row);
    v.size = fixed;
  } else {
    std::int64_t begin, end;
    if (wide) {
      std::int64_t pair[2];
      std::memcpy(pair, static_cast<const std::int64_t*>(offsets) + row, sizeof pair);
      begin = pair[0];
      end = pair[1];
    } else {
      std::int32_t pair[2];
      std::memcpy(pair, static_cast<const std::int32_t*>(offsets) + row, sizeof pair);
      begin = pair[0];
      end = pair[1];
    }
    if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > size)
      throw Fault(FaultKind::damaged, "the shard's offsets lead outside its data");
    v.data = data + begin;
    v.size = static_cast<std::size_t>(end - begin);
  }
  v.readable_end = data + size;
  if (crcs != nullptr) {
    std::memcpy(&v.crc, crcs + row, sizeof v.crc);
    v.has_crc = true;
  }
  return v;
}

void Chunk::check(std::size_t offsets_size, std::size_t crcs_size) const {
  const auto n = static_cast<std::size_t>(rows);
  if (rows < 0) throw std::invalid_argument("a chunk can't have fewer than no rows");
  if (offsets != nullptr) {
    if (offsets_size / (wide ? 8 : 4) < n + 1) throw std::invalid_argument("too few offsets for the rows of a chunk");
  } else if (fixed == 0 ? n != 0 : size / fixed < n) {
    throw std::invalid_argument("too few bytes for the rows of a chunk");
  }
  if (crcs != nullptr && crcs_size / 4 < n) throw std::invalid_argument("too few checksums for the rows of a chunk");
}

Table::Table(std::vector<std::int64_t> shard_starts)
    : starts_(std::move(shard_starts)), shards_(starts_.empty() ? 0 : starts_.size() - 1) {
  if (starts_.empty() || starts_[0] != 0 || !std::is_sorted(starts_.begin(), starts_.end()))
    throw std::invalid_argument("shard starts must rise from 0");
}

Table::~Table() {
  for (auto& s : shards_) delete s.load();
}

bool Table::has(std::int64_t shard) const {
  if (shard < 0 || shard >= shards()) throw std::out_of_range("no such shard");
  return shards_[static_cast<std::size_t>(shard)].load(std::memory_order_acquire) != nullptr;
}

void Table::set(std::int64_t shard, std::vector<Chunk> chunks) {
  if (has(shard)) return;
  auto made = std::make_unique<Shard>();
  std::int64_t at = 0;
  for (const Chunk& c : chunks) {
    made->starts.push_back(at);
    at += c.rows;
  }
  made->starts.push_back(at);
  const auto s = static_cast<std::size_t>(shard);
  if (at != starts_[s + 1] - starts_[s])
    throw std::invalid_argument("the shard holds " + std::to_string(at) + " rows, the manifest says " +
                                std::to_string(starts_[s + 1] - starts_[s]));
  made->chunks = std::move(chunks);
  const Shard* expected = nullptr;
  if (shards_[s].compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) made.release();
}

std::int64_t Table::shard_of(std::int64_t row) const {
  return std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin() - 1;
}

Value Table::at(std::int64_t row) const {
  if (row < 0 || row >= rows()) throw std::out_of_range("row " + std::to_string(row) + " of " + std::to_string(rows()));
  const std::int64_t s = shard_of(row);
  const Shard* shard = shards_[static_cast<std::size_t>(s)].load(std::memory_order_acquire);
  if (shard == nullptr) throw std::logic_error("the shard of this row has not been mapped");
  const std::int64_t within = row - starts_[static_cast<std::size_t>(s)];
  const auto c = static_cast<std::size_t>(std::upper_bound(shard->starts.begin(), shard->starts.end(), within) -
                                          shard->starts.begin() - 1);
  return shard->chunks[c].at(within - shard->starts[c]);
}

}  // namespace zcd
