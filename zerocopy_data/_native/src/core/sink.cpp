#include "core/sink.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zcd {
namespace {

void mirror_scalar(const std::uint8_t* in, int from, int w, std::uint8_t* out) {
  for (int x = from; x < w; ++x) std::memcpy(out + 3 * x, in + 3 * (w - 1 - x), 3);
}

void planes_scalar(const std::uint8_t* in, int from, int w, std::uint8_t* r, std::uint8_t* g, std::uint8_t* b) {
  for (int x = from; x < w; ++x) {
    r[x] = in[3 * x];
    g[x] = in[3 * x + 1];
    b[x] = in[3 * x + 2];
  }
}

#if defined(__x86_64__)

__attribute__((target("ssse3"))) int mirror_simd(const std::uint8_t* in, int w, std::uint8_t* out) {
  // Five pixels a step: bytes 1..15 of a load become bytes 0..14, pixels in reverse.
  const __m128i order = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
  int x = 0;
  for (; x + 6 <= w; x += 5) {  // six, since a store of 16 bytes touches a sixth pixel, and a load one before the fifth
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 3 * (w - x) - 16));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * x), _mm_shuffle_epi8(v, order));
  }
  return x;
}

__attribute__((target("ssse3"))) int planes_simd(const std::uint8_t* in, int w, std::uint8_t* r, std::uint8_t* g,
                                                 std::uint8_t* b) {
  // Sixteen pixels lie in three registers; each plane takes five or six bytes of each.
  const auto m = [](int a, int c, int d, int e, int f, int h, int i, int j, int k, int l, int n, int o, int p, int q, int s,
                    int t) {
    return _mm_setr_epi8(static_cast<char>(a), static_cast<char>(c), static_cast<char>(d), static_cast<char>(e),
                         static_cast<char>(f), static_cast<char>(h), static_cast<char>(i), static_cast<char>(j),
                         static_cast<char>(k), static_cast<char>(l), static_cast<char>(n), static_cast<char>(o),
                         static_cast<char>(p), static_cast<char>(q), static_cast<char>(s), static_cast<char>(t));
  };
  const __m128i r0 = m(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i r1 = m(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1);
  const __m128i r2 = m(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13);
  const __m128i g0 = m(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i g1 = m(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1);
  const __m128i g2 = m(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14);
  const __m128i b0 = m(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i b1 = m(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1);
  const __m128i b2 = m(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15);
  int x = 0;
  for (; x + 16 <= w; x += 16) {
    const auto* p = reinterpret_cast<const __m128i*>(in + 3 * x);
    const __m128i v0 = _mm_loadu_si128(p), v1 = _mm_loadu_si128(p + 1), v2 = _mm_loadu_si128(p + 2);
    const auto pick = [&](__m128i k0, __m128i k1, __m128i k2) __attribute__((target("ssse3"))) {
      return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(v0, k0), _mm_shuffle_epi8(v1, k1)), _mm_shuffle_epi8(v2, k2));
    };
    _mm_storeu_si128(reinterpret_cast<__m128i*>(r + x), pick(r0, r1, r2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(g + x), pick(g0, g1, g2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(b + x), pick(b0, b1, b2));
  }
  return x;
}

const bool kSimd = __builtin_cpu_supports("ssse3");

#endif

void mirror(const std::uint8_t* in, int w, std::uint8_t* out) {
  int done = 0;
#if defined(__x86_64__)
  if (kSimd) done = mirror_simd(in, w, out);
#endif
  mirror_scalar(in, done, w, out);
}

void planes(const std::uint8_t* in, int w, std::uint8_t* r, std::uint8_t* g, std::uint8_t* b) {
  int done = 0;
#if defined(__x86_64__)
  if (kSimd) done = planes_simd(in, w, r, g, b);
#endif
  planes_scalar(in, done, w, r, g, b);
}

// Eight bytes a load: the loop is bound by loads and stores, and the look-ups themselves cannot be fewer.
template <typename T>
void look_up(const std::uint8_t* in, std::ptrdiff_t n, const std::uint32_t* table, T* out) {
  std::ptrdiff_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, in + i, 8);
    for (int k = 0; k < 8; ++k) out[i + k] = static_cast<T>(table[eight >> (8 * k) & 0xff]);
  }
  for (; i < n; ++i) out[i] = static_cast<T>(table[in[i]]);
}

template <typename T>
void look_up_pixels(const std::uint8_t* in, int w, const std::uint32_t* table, T* out) {
  for (int x = 0; x < w; ++x)
    for (int c = 0; c < kChannels; ++c) out[3 * x + c] = static_cast<T>(table[256 * c + in[3 * x + c]]);
}

std::vector<std::uint8_t>& thread_line(std::size_t bytes) {
  thread_local std::vector<std::uint8_t> line;
  if (line.size() < bytes) line.resize(bytes);
  return line;
}

}  // namespace

FormatSink::FormatSink(const Format& format, int w, int h, bool flip, std::uint8_t* out)
    : format_(format), w_(w), h_(h), flip_(flip), out_(out), line_(thread_line(static_cast<std::size_t>(w) * 6 + kSlack)) {}

void FormatSink::row(int y, const std::uint8_t* rgb) {
  const std::size_t size = item_size(format_.dtype);
  const std::ptrdiff_t plane = std::ptrdiff_t{w_} * h_, at = std::ptrdiff_t{w_} * y;
  const bool to_bytes = format_.dtype == Dtype::uint8;
  std::uint8_t* line = line_.data();
  if (format_.layout == Layout::nhwc) {
    std::uint8_t* to = out_ + at * 3 * static_cast<std::ptrdiff_t>(size);
    if (to_bytes) {
      if (flip_)
        mirror(rgb, w_, to);
      else
        std::memcpy(to, rgb, static_cast<std::size_t>(w_) * 3);
      return;
    }
    if (flip_) {
      mirror(rgb, w_, line);
      rgb = line;
    }
    if (format_.dtype == Dtype::float32)
      look_up_pixels(rgb, w_, format_.table.data(), reinterpret_cast<std::uint32_t*>(to));
    else
      look_up_pixels(rgb, w_, format_.table.data(), reinterpret_cast<std::uint16_t*>(to));
    return;
  }
  if (flip_) {
    mirror(rgb, w_, line);
    rgb = line;
  }
  if (to_bytes) {
    planes(rgb, w_, out_ + at, out_ + plane + at, out_ + 2 * plane + at);
    return;
  }
  std::uint8_t* split = line + std::ptrdiff_t{3} * w_;
  planes(rgb, w_, split, split + w_, split + 2 * w_);
  for (int c = 0; c < kChannels; ++c) {
    const std::uint8_t* from = split + std::ptrdiff_t{c} * w_;
    const std::uint32_t* table = format_.table.data() + 256 * c;
    std::uint8_t* to = out_ + (plane * c + at) * static_cast<std::ptrdiff_t>(size);
    if (format_.dtype == Dtype::float32)
      look_up(from, w_, table, reinterpret_cast<std::uint32_t*>(to));
    else
      look_up(from, w_, table, reinterpret_cast<std::uint16_t*>(to));
  }
}

void BytesSink::row(int y, const std::uint8_t* rgb) {
  std::uint8_t* to = out_ + stride_ * y;
  if (flip_)
    mirror(rgb, w_, to);
  else
    std::memcpy(to, rgb, static_cast<std::size_t>(w_) * 3);
}

}  // namespace zcd
