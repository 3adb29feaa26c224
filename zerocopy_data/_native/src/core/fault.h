#pragma once

#include <stdexcept>
#include <string>

namespace zcd {

// Why one sample could not be made. `unsupported` is a request to try Pillow, the others are final; `misfit` is a sound
// image of a size that the operations can't work on.
enum class FaultKind : signed char { none = 0, unsupported = 1, damaged = 2, checksum = 3, cancelled = 4, misfit = 5 };

struct Fault : std::runtime_error {
  Fault(FaultKind k, const std::string& what) : std::runtime_error(what), kind(k) {}
  FaultKind kind;
};

}  // namespace zcd
