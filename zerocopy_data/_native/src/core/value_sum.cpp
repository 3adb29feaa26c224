#include "core/value_sum.h"

#include <algorithm>
#include <cstdio>

#include "core/crc32c.h"
#include "core/fault.h"

namespace zcd {

void ValueSum::reach(const std::uint8_t* end) {
  if (!value_.has_crc) return;
  const std::uint8_t* last = value_.data + value_.size;
  while (at_ < end && at_ < last) {
    const std::size_t bytes = std::min(kCrcBlock, static_cast<std::size_t>(last - at_));
    at_ += bytes;
    sum_ = crc32c(at_ - bytes, bytes, sum_, static_cast<std::size_t>(last - at_));
  }
}

void ValueSum::finish() {
  if (!value_.has_crc) return;
  const std::uint8_t* last = value_.data + value_.size;
  sum_ = crc32c(at_, static_cast<std::size_t>(last - at_), sum_);
  at_ = last;
  if (sum_ == value_.crc) return;
  char text[128];
  std::snprintf(text, sizeof text, "checksum mismatch: CRC-32C of the %zu stored bytes is %08x, written was %08x", value_.size,
                sum_, value_.crc);
  throw Fault(FaultKind::checksum, text);
}

}  // namespace zcd
