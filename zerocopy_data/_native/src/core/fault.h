#pragma once

#include <stdexcept>
#include <string>

namespace zcd {

// Why one sample could not be made. `unsupported` is a request to try Pillow, the others are final; `misfit` is a sound
// image of a size that the operations can't work on; `system` is no fault of the sample: the process has run out of
// something that reading it needs.
enum class FaultKind : signed char {
  none = 0,
  unsupported = 1,
  damaged = 2,
  checksum = 3,
  cancelled = 4,
  misfit = 5,
  system = 6
};

struct Fault : std::runtime_error {
  Fault(FaultKind k, const std::string& what) : std::runtime_error(what), kind(k) {}
  FaultKind kind;
};

}  // namespace zcd
