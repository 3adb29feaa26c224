#include "core/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace zcd {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // Castagnoli, bit-reversed

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) ? (c >> 1) ^ kPolynomial : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto kTable = make_table();

std::uint32_t crc_scalar(const std::uint8_t* p, std::size_t n, std::uint32_t c) {
  for (; n; --n, ++p) c = (c >> 8) ^ kTable[(c ^ *p) & 0xff];
  return c;
}

#if defined(__x86_64__)

// The crc32 instruction takes three cycles and starts one a cycle, so three streams run side by side.
// Their sums are joined by advancing a CRC over `kStream` zero bytes, which is linear: one table a byte of the CRC.
constexpr std::size_t kStream = kCrcBlock / 3;

struct ZeroShift {
  std::uint32_t table[4][256];
  ZeroShift() {
    for (int byte = 0; byte < 4; ++byte)
      for (std::uint32_t v = 0; v < 256; ++v) {
        std::uint32_t c = v << (8 * byte);
        for (std::size_t i = 0; i < kStream; ++i) c = (c >> 8) ^ kTable[c & 0xff];
        table[byte][v] = c;
      }
  }
  std::uint32_t operator()(std::uint32_t c) const {
    return table[0][c & 0xff] ^ table[1][(c >> 8) & 0xff] ^ table[2][(c >> 16) & 0xff] ^ table[3][c >> 24];
  }
};

inline std::uint64_t load64(const std::uint8_t* p) {
  std::uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

__attribute__((target("sse4.2"))) std::uint32_t crc_hardware(const std::uint8_t* p, std::size_t n,
                                                             std::uint32_t crc, std::size_t ahead) {
  static const ZeroShift shift;
  std::uint64_t c = crc;
  while (n >= 3 * kStream) {
    std::uint64_t a = c, b = 0, d = 0;
    // From memory, not cache, the hardware's own read-ahead is too late for three short streams. A few lines beyond the
    // end are harmless to ask for; a block of them, behind a value that ends here, would cost as much as the value.
    const std::size_t next = std::min(n + ahead - 3 * kStream, 3 * kStream);
    for (std::size_t i = 0; i < kStream; i += 8) {
      if (i % 64 == 0 && 3 * i < next)
        for (std::size_t line = 0; line < 3; ++line)
          _mm_prefetch(reinterpret_cast<const char*>(p + 3 * kStream + 3 * i + 64 * line), _MM_HINT_T0);
      a = _mm_crc32_u64(a, load64(p + i));
      b = _mm_crc32_u64(b, load64(p + kStream + i));
      d = _mm_crc32_u64(d, load64(p + 2 * kStream + i));
    }
    c = shift(shift(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b)) ^ d;
    p += 3 * kStream;
    n -= 3 * kStream;
  }
  for (; n >= 8; n -= 8, p += 8) c = _mm_crc32_u64(c, load64(p));
  auto c32 = static_cast<std::uint32_t>(c);
  for (; n; --n, ++p) c32 = _mm_crc32_u8(c32, *p);
  return c32;
}

#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc, [[maybe_unused]] std::size_t ahead) {
  const auto* p = static_cast<const std::uint8_t*>(data);
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware) return ~crc_hardware(p, size, ~crc, ahead);
#endif
  return ~crc_scalar(p, size, ~crc);
}

}  // namespace zcd
