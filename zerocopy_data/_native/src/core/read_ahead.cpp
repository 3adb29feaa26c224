#include "core/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/fault.h"

namespace zcd {
namespace {

std::uintptr_t page_size() {
  static const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::uintptr_t number(const std::uint8_t* address) { return reinterpret_cast<std::uintptr_t>(address); }

const std::uint8_t* address(std::uintptr_t number) { return reinterpret_cast<const std::uint8_t*>(number); }

std::size_t size_of(const Extent& extent) { return number(extent.end) - number(extent.begin); }

}  // namespace

std::vector<Extent> joined(std::vector<Extent> extents, std::size_t gap) {
  const std::uintptr_t inside = page_size() - 1;
  std::sort(extents.begin(), extents.end(),
            [](const Extent& one, const Extent& other) { return number(one.begin) < number(other.begin); });
  std::vector<Extent> out;
  for (const Extent& extent : extents) {
    if (number(extent.end) <= number(extent.begin)) continue;
    const std::uintptr_t begin = number(extent.begin) & ~inside;
    const std::uintptr_t end = (number(extent.end) + inside) & ~inside;
    if (!out.empty()) {
      Extent& last = out.back();
      const std::uintptr_t reached = number(last.end);
      const bool touches = begin <= reached;
      if (touches || (extent.buffer_end == last.buffer_end && begin - reached <= gap)) {
        last.end = address(std::max(end, reached));
        last.buffer_end = extent.buffer_end;
        continue;
      }
    }
    out.push_back({address(begin), address(end), extent.buffer_end});
  }
  return out;
}

std::vector<Extent> extents_of(const Table& table, const std::int64_t* rows, std::int64_t n) {
  std::vector<Extent> out;
  out.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    if (rows[i] < 0 || rows[i] >= table.rows())
      throw std::out_of_range("row " + std::to_string(rows[i]) + " of " + std::to_string(table.rows()));
    if (!table.has(table.shard_of(rows[i]))) continue;
    try {
      const Value value = table.at(rows[i]);
      if (value.size != 0) out.push_back({value.data, value.data + value.size, value.readable_end});
    } catch (const Fault&) {
    }
  }
  return out;
}

std::size_t bytes_of(const std::vector<Extent>& extents) {
  std::size_t bytes = 0;
  for (const Extent& extent : extents) bytes += size_of(extent);
  return bytes;
}

std::size_t ask_for_pages(const std::vector<Extent>& extents, std::size_t room) {
  std::size_t asked = 0;
  for (const Extent& extent : extents) {
    const std::size_t size = std::min(size_of(extent), (room - asked) & ~static_cast<std::size_t>(page_size() - 1));
    if (size == 0) break;
    // An error is no matter: the pages come when they are touched.
    (void)madvise(const_cast<std::uint8_t*>(extent.begin), size, MADV_WILLNEED);
    asked += size;
  }
  return asked;
}

}  // namespace zcd
