#pragma once

#include <cstddef>
#include <cstdint>

namespace zcd {

// The fewest bytes that are summed at full speed; multiples of it are, too.
constexpr std::size_t kCrcBlock = 3072;

// CRC-32C (Castagnoli, RFC 3720 appendix B.4), continuing from `crc`. So many bytes behind it as `ahead` says will be
// read next, and may be fetched from memory meanwhile.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc = 0, std::size_t ahead = 0);

}  // namespace zcd
