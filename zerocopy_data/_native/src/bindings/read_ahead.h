#pragma once

#include <vector>

#include "core/read_ahead.h"

namespace zcd::py {

// Python's Extents: those of one column, which must outlive them.
struct Extents {
  std::vector<Extent> extents;
};

}  // namespace zcd::py
