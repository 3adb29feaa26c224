#include "core/resize_kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zcd::kernels {
namespace {

constexpr int kPrecision = 22;
constexpr std::int32_t kHalf = 1 << (kPrecision - 1);
constexpr int kLowBits = 15;

inline std::uint8_t clip(std::int32_t sum) {
  sum >>= kPrecision;
  return static_cast<std::uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

void across_scalar(const Weights& w, int origin, const std::uint8_t* in, std::ptrdiff_t in_stride, int rows,
                   std::uint8_t* out, std::ptrdiff_t out_stride) {
  for (int y = 0; y < rows; ++y, in += in_stride, out += out_stride)
    for (int i = 0; i < w.count(); ++i) {
      const std::int32_t* k = w.fixed(i);
      const std::uint8_t* p = in + std::ptrdiff_t{w.begin(i) - origin} * kChannels;
      std::int32_t r = kHalf, g = kHalf, b = kHalf;
      for (int t = 0; t < w.taps(i); ++t, p += kChannels) {
        r += p[0] * k[t];
        g += p[1] * k[t];
        b += p[2] * k[t];
      }
      out[3 * i] = clip(r);
      out[3 * i + 1] = clip(g);
      out[3 * i + 2] = clip(b);
    }
}

void down_scalar(const Weights& w, int i, const std::uint8_t* in, std::ptrdiff_t stride, int bytes,
                 std::uint8_t* out) {
  const std::int32_t* k = w.fixed(i);
  for (int x = 0; x < bytes; ++x) {
    std::int32_t sum = kHalf;
    for (int t = 0; t < w.taps(i); ++t) sum += in[stride * t + x] * k[t];
    out[x] = clip(sum);
  }
}

#if defined(__x86_64__)

#define ZCD_AVX2 __attribute__((target("avx2")))

// Two rows at a time, one in each half of a register; sums of R, G, B and a lane of no meaning.
struct Sums {
  __m256i low, high;
};

ZCD_AVX2 inline __m256i two_rows(const std::uint8_t* a, const std::uint8_t* b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1);
}

ZCD_AVX2 inline void add(Sums& s, __m256i pixels, __m256i low, __m256i high) {
  s.low = _mm256_add_epi32(s.low, _mm256_madd_epi16(pixels, low));
  s.high = _mm256_add_epi32(s.high, _mm256_madd_epi16(pixels, high));
}

ZCD_AVX2 inline __m256i finish(const Sums& s) {
  return _mm256_srai_epi32(_mm256_add_epi32(s.low, _mm256_slli_epi32(s.high, kLowBits)), kPrecision);
}

ZCD_AVX2 void across_four(const Weights& w, int origin, const std::uint8_t* const in[4], std::uint8_t* const out[4]) {
  // 16-bit lanes R0 R1 G0 G1 B0 B1 0 0 from pixels 0 and 1, and the same from pixels 2 and 3.
  const __m256i first = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i second = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m256i half = _mm256_set1_epi32(kHalf);
  const int count = w.count();
  for (int i = 0; i < count; ++i) {
    const std::uint32_t* pair = w.pairs(i);
    const std::ptrdiff_t at = std::ptrdiff_t{w.begin(i) - origin} * kChannels;
    const int taps = w.taps(i);
    Sums ab{half, _mm256_setzero_si256()}, cd = ab;
    int t = 0;
    for (; t < taps; t += 4) {
      const std::ptrdiff_t from = at + std::ptrdiff_t{t} * kChannels;
      const __m256i p = two_rows(in[0] + from, in[1] + from), q = two_rows(in[2] + from, in[3] + from);
      const __m256i l0 = _mm256_set1_epi32(static_cast<int>(pair[t])), h0 = _mm256_set1_epi32(static_cast<int>(pair[t + 1]));
      add(ab, _mm256_shuffle_epi8(p, first), l0, h0);
      add(cd, _mm256_shuffle_epi8(q, first), l0, h0);
      if (t + 2 < taps) {
        const __m256i l1 = _mm256_set1_epi32(static_cast<int>(pair[t + 2])), h1 = _mm256_set1_epi32(static_cast<int>(pair[t + 3]));
        add(ab, _mm256_shuffle_epi8(p, second), l1, h1);
        add(cd, _mm256_shuffle_epi8(q, second), l1, h1);
      }
    }
    // Sums shifted right lie in -640..639 (Pillow's own table has that range), so two saturating packs clip to a byte.
    const __m256i words = _mm256_packs_epi32(finish(ab), finish(cd));
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m128i ac = _mm256_castsi256_si128(bytes), bd = _mm256_extracti128_si256(bytes, 1);
    // Four bytes are written a pixel: the fourth is overwritten by the next pixel or falls into the slack.
    const int to = kChannels * i;
    const int va = _mm_cvtsi128_si32(ac), vc = _mm_extract_epi32(ac, 1);
    const int vb = _mm_cvtsi128_si32(bd), vd = _mm_extract_epi32(bd, 1);
    std::memcpy(out[0] + to, &va, 4);
    std::memcpy(out[1] + to, &vb, 4);
    std::memcpy(out[2] + to, &vc, 4);
    std::memcpy(out[3] + to, &vd, 4);
  }
}

ZCD_AVX2 void across_avx2(const Weights& w, int origin, const std::uint8_t* in, std::ptrdiff_t in_stride, int rows,
                          std::uint8_t* out, std::ptrdiff_t out_stride) {
  for (int y = 0; y < rows; y += 4) {
    const std::uint8_t* from[4];
    std::uint8_t* to[4];
    for (int r = 0; r < 4; ++r) {  // a last group of fewer rows does its last row more than once
      const int row = y + r < rows ? y + r : rows - 1;
      from[r] = in + in_stride * row;
      to[r] = out + out_stride * row;
    }
    across_four(w, origin, from, to);
  }
}

ZCD_AVX2 void down_avx2(const Weights& w, int i, const std::uint8_t* in, std::ptrdiff_t stride, int bytes,
                        std::uint8_t* out) {
  const std::uint32_t* pair = w.pairs(i);
  const int taps = w.taps(i);
  const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(kHalf);
  for (int x = 0; x < bytes; x += 32) {
    Sums s0{half, zero}, s1 = s0, s2 = s0, s3 = s0;
    for (int t = 0; t < taps; t += 2) {
      const std::uint8_t* p = in + stride * t + x;
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      // The padding weight of an odd last tap is zero, and its row may lie beyond the input.
      const __m256i b = t + 1 < taps ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + stride)) : zero;
      const __m256i low = _mm256_set1_epi32(static_cast<int>(pair[t])), high = _mm256_set1_epi32(static_cast<int>(pair[t + 1]));
      const __m256i even = _mm256_unpacklo_epi8(a, b), odd = _mm256_unpackhi_epi8(a, b);
      add(s0, _mm256_unpacklo_epi8(even, zero), low, high);
      add(s1, _mm256_unpackhi_epi8(even, zero), low, high);
      add(s2, _mm256_unpacklo_epi8(odd, zero), low, high);
      add(s3, _mm256_unpackhi_epi8(odd, zero), low, high);
    }
    const __m256i left = _mm256_packs_epi32(finish(s0), finish(s1)), right = _mm256_packs_epi32(finish(s2), finish(s3));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_packus_epi16(left, right));
  }
}

#endif

}  // namespace

const Table& table() {
  static const Table chosen = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return Table{across_avx2, down_avx2, "avx2"};
#endif
    return Table{across_scalar, down_scalar, "scalar"};
  }();
  return chosen;
}

}  // namespace zcd::kernels
