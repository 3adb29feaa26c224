#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/table.h"

namespace zcd {

// Bytes of a mapped file that will be read. `buffer_end` tells of which buffer they are a part: extents of different
// buffers are never joined over what lies between them, which may be anything.
struct Extent {
  const std::uint8_t* begin = nullptr;
  const std::uint8_t* end = nullptr;
  const std::uint8_t* buffer_end = nullptr;
};

// Whole pages, rising, joined where they overlap or touch, or where no more than `gap` bytes of the same buffer lie
// between them: a disk reads those faster than it begins anew.
std::vector<Extent> joined(std::vector<Extent> extents, std::size_t gap);

// Where the values of rows lie, one extent a value that has bytes. A row whose shard has not been mapped, or whose
// offsets lead outside its data, has none: whoever reads it says so. Throws std::out_of_range for a row that does not
// exist.
std::vector<Extent> extents_of(const Table& table, const std::int64_t* rows, std::int64_t n);

std::size_t bytes_of(const std::vector<Extent>& extents);

// Asks the kernel for the pages of joined extents in their order, for no more than `room` bytes of them. Returns how many
// bytes were asked for. Does not wait for them, but for a place in the disk's queue.
std::size_t ask_for_pages(const std::vector<Extent>& extents, std::size_t room);

}  // namespace zcd
