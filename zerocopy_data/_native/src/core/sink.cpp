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

// How the planes of sixteen pixels are picked from their 48 bytes. Three is coprime to 16, so the bytes of one plane
// differ in their place within a register: three blends put them into one, a shuffle brings them into order.
struct Picks {
  alignas(16) std::int8_t third[3][16];     // all bits where the place's remainder by three is that
  alignas(16) std::int8_t order[2][3][16];  // [mirrored][plane]
};

constexpr Picks kPicks = [] {
  Picks p{};
  for (int c = 0; c < kChannels; ++c)
    for (int k = 0; k < 16; ++k) {
      p.third[c][k] = k % 3 == c ? -1 : 0;
      p.order[0][c][k] = static_cast<std::int8_t>((3 * k + c) % 16);
      p.order[1][c][k] = static_cast<std::int8_t>((3 * (15 - k) + c) % 16);
    }
  return p;
}();

#define ZCD_AVX2 __attribute__((target("avx2")))

ZCD_AVX2 inline __m256i both_halves(const std::int8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}

ZCD_AVX2 inline __m256i halves(const std::uint8_t* low, const std::uint8_t* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

template <bool kStream>
ZCD_AVX2 inline void put(std::uint8_t* to, __m256i v) {
  if constexpr (kStream)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), v);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
}

// 32 pixels a step, sixteen in each half of a register. Mirrored, the halves come from the row's end.
template <bool kMirror, bool kStream>
ZCD_AVX2 int planes_simd(const std::uint8_t* in, int w, std::uint8_t* r, std::uint8_t* g, std::uint8_t* b) {
  const __m256i r_order = both_halves(kPicks.order[kMirror][0]), g_order = both_halves(kPicks.order[kMirror][1]),
                b_order = both_halves(kPicks.order[kMirror][2]);
  const __m256i first = both_halves(kPicks.third[0]), second = both_halves(kPicks.third[1]),
                last = both_halves(kPicks.third[2]);
  int x = 0;
  for (; x + 32 <= w; x += 32) {
    const std::uint8_t* low = in + 3 * (kMirror ? w - x - 16 : x);
    const std::uint8_t* high = in + 3 * (kMirror ? w - x - 32 : x + 16);
    const __m256i v0 = halves(low, high), v1 = halves(low + 16, high + 16), v2 = halves(low + 32, high + 32);
    const __m256i red = _mm256_blendv_epi8(_mm256_blendv_epi8(v0, v1, last), v2, second);
    const __m256i green = _mm256_blendv_epi8(_mm256_blendv_epi8(v0, v1, first), v2, last);
    const __m256i blue = _mm256_blendv_epi8(_mm256_blendv_epi8(v0, v1, second), v2, first);
    put<kStream>(r + x, _mm256_shuffle_epi8(red, r_order));
    put<kStream>(g + x, _mm256_shuffle_epi8(green, g_order));
    put<kStream>(b + x, _mm256_shuffle_epi8(blue, b_order));
  }
  return x;
}

const bool kAvx2 = __builtin_cpu_supports("avx2");
const bool kSimd = __builtin_cpu_supports("ssse3");

#endif

void mirror(const std::uint8_t* in, int w, std::uint8_t* out) {
  int done = 0;
#if defined(__x86_64__)
  if (kSimd) done = mirror_simd(in, w, out);
#endif
  mirror_scalar(in, done, w, out);
}

// `stream` asks for stores past the caches; they want w and the planes' addresses to be multiples of 32.
template <bool kMirror>
void planes(const std::uint8_t* in, int w, std::uint8_t* r, std::uint8_t* g, std::uint8_t* b, [[maybe_unused]] bool stream) {
  int done = 0;
#if defined(__x86_64__)
  if (kAvx2) done = stream ? planes_simd<kMirror, true>(in, w, r, g, b) : planes_simd<kMirror, false>(in, w, r, g, b);
#endif
  for (int x = done; x < w; ++x) {
    const std::uint8_t* pixel = in + 3 * (kMirror ? w - 1 - x : x);
    r[x] = pixel[0];
    g[x] = pixel[1];
    b[x] = pixel[2];
  }
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

FormatSink::FormatSink(const Format& format, int w, int h, bool flip, std::uint8_t* out, bool stream)
    : format_(format), w_(w), h_(h), flip_(flip), out_(out), line_(thread_line(static_cast<std::size_t>(w) * 3 + kSlack)) {
  const auto multiple = [](std::uintptr_t n) { return n % 32 == 0; };
  stream_ = stream && format.dtype == Dtype::uint8 && format.layout == Layout::nchw && multiple(static_cast<unsigned>(w)) &&
            multiple(reinterpret_cast<std::uintptr_t>(out));
}

FormatSink::~FormatSink() {
#if defined(__x86_64__)
  if (stream_) _mm_sfence();  // such stores are weakly ordered: whoever hears that the sample is done must see them
#endif
}

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
  const auto split = flip_ ? planes<true> : planes<false>;
  if (to_bytes) {
    split(rgb, w_, out_ + at, out_ + plane + at, out_ + 2 * plane + at, stream_);
    return;
  }
  split(rgb, w_, line, line + w_, line + 2 * w_, false);
  for (int c = 0; c < kChannels; ++c) {
    const std::uint8_t* from = line + std::ptrdiff_t{c} * w_;
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
