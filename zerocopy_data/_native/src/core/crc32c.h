#pragma once

#include <cstddef>
#include <cstdint>

namespace zcd {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4), continuing from `crc`.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc = 0);

}  // namespace zcd
