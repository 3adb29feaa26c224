#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/table.h"

namespace zcd {

// Paths of files as one text: row r's is prefix + paths[offsets[i] .. offsets[i + 1]), where i is r itself or, with
// `rows`, the place of r in them. Points into memory that somebody else keeps.
struct PathList {
  std::string prefix;
  const char* paths = nullptr;
  const std::int64_t* offsets = nullptr;  // count + 1 of them
  std::int64_t count = 0;
  const std::int64_t* rows = nullptr;  // count of them, rising; null: 0, 1, 2, …
};

// A column whose values are whole files, read when they are asked for.
class Files final : public Values {
 public:
  // Throws std::invalid_argument when the list contradicts itself or `size`, the bytes of its paths.
  Files(PathList list, std::size_t size);

  bool has(std::int64_t row) const { return place(row) >= 0; }
  std::string path(std::int64_t row) const;  // throws std::out_of_range
  // Throws Fault: `damaged` for what can't be read, or is no file; `system` when the process lacks descriptors or memory.
  Value read(std::int64_t row, Buffer& room) const override;

 private:
  std::int64_t place(std::int64_t row) const;  // -1: not there
  PathList list_;
};

}  // namespace zcd
