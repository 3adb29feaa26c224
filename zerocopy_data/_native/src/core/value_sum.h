#pragma once

#include <cstdint>

#include "core/table.h"

namespace zcd {

// The CRC-32C of one stored value, taken as its bytes are read: each line then comes from memory once, and is summed
// while the one before is worked on. Nobody may be handed what was made of the value until `finish` has returned.
class ValueSum {
 public:
  explicit ValueSum(const Value& value) : value_(value), at_(value.data) {}
  // Sums the bytes before `end`, and perhaps a few further ones of the value.
  void reach(const std::uint8_t* end);
  // Sums the rest. Throws Fault(checksum) when the stored sum is another one; without a stored sum nothing is checked.
  void finish();

 private:
  const Value& value_;
  const std::uint8_t* at_;
  std::uint32_t sum_ = 0;
};

}  // namespace zcd
