#include "core/resize_blend.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zcd::kernels {

BlendWeight blend_weight(const Weights& w, int i) {
  const std::int32_t* fixed = w.fixed(i);
  const std::int32_t second = w.taps(i) > 1 ? fixed[1] : 0;
  const bool swapped = second > fixed[0];
  const std::int32_t far = std::min(second, fixed[0]);  // no branch: it would be mispredicted every other time
  const std::int32_t high = std::min(far >> 6, 32767);  // one half would need 16 bits: `low` takes the 64 that are left
  return {swapped, static_cast<std::int16_t>(high), static_cast<std::int16_t>(far - 64 * high)};
}

bool BlendAcross::prepare(const Weights& w, int origin) {
  const int bytes = w.count() * kChannels;
  eights_.resize(static_cast<std::size_t>((bytes + 15) / 16 * 2));
  int pixel = 0, channel = 0;
  BlendWeight weight = blend_weight(w, 0);
  for (Eight& eight : eights_) {
    const int base = w.begin(pixel);
    eight.from = std::ptrdiff_t{base - origin} * kChannels;
    for (int k = 0; k < 8; ++k) {
      const int at = (w.begin(pixel) - base) * kChannels + channel, next = w.taps(pixel) > 1 ? at + kChannels : at;
      if (next > 15) return false;
      eight.near[2 * k] = static_cast<std::int8_t>(weight.swapped ? next : at);
      eight.far[2 * k] = static_cast<std::int8_t>(weight.swapped ? at : next);
      eight.near[2 * k + 1] = eight.far[2 * k + 1] = -1;
      eight.high[k] = weight.high;
      eight.low[k] = weight.low;
      if (++channel < kChannels) continue;
      channel = 0;
      if (pixel + 1 == w.count()) continue;  // what lies beyond the row repeats its last pixel
      weight = blend_weight(w, ++pixel);
    }
  }
  return true;
}

#if defined(__x86_64__)
namespace {

#define ZCD_AVX2 __attribute__((target("avx2")))

// near + floor((far - near) · w / 2^22 + 1/2) for 16-bit lanes that hold bytes. The product is high · 2^16 + low without
// sign; adding the 1/2 and the product of the lower six bits carries into the upper half or does not.
ZCD_AVX2 inline __m256i mix(__m256i near, __m256i far, __m256i high, __m256i low) {
  const __m256i d = _mm256_sub_epi16(far, near);
  const __m256i rest = _mm256_srai_epi16(_mm256_mullo_epi16(d, low), 6);
  const __m256i below = _mm256_xor_si256(_mm256_mullo_epi16(d, high), _mm256_set1_epi16(INT16_MIN));  // less one half
  const __m256i carry = _mm256_cmpgt_epi16(_mm256_adds_epi16(below, rest), _mm256_set1_epi16(-1));    // -1 if so
  return _mm256_sub_epi16(_mm256_add_epi16(near, _mm256_mulhi_epi16(d, high)), carry);
}

ZCD_AVX2 inline __m256i both_halves(const void* p) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(p)));
}

// Sixteen bytes of each of two rows.
ZCD_AVX2 inline __m256i two_rows(const std::uint8_t* a, const std::uint8_t* b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1);
}

ZCD_AVX2 inline void store_two(__m256i v, std::uint8_t* a, std::uint8_t* b) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(a), _mm256_castsi256_si128(v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(b), _mm256_extracti128_si256(v, 1));
}

ZCD_AVX2 void across_avx2(const BlendAcross& plan, const std::uint8_t* in, std::ptrdiff_t in_stride, int rows,
                          std::uint8_t* out, std::ptrdiff_t out_stride) {
  const BlendAcross::Eight* eights = plan.eights().data();
  const std::size_t count = plan.eights().size();
  for (int y = 0; y < rows; y += 4) {
    const std::uint8_t* from[4];
    std::uint8_t* to[4];
    for (int r = 0; r < 4; ++r) {  // a last group of fewer rows does its last row more than once
      const int row = std::min(y + r, rows - 1);
      from[r] = in + in_stride * row;
      to[r] = out + out_stride * row;
    }
    for (std::size_t i = 0; i < count; i += 2) {
      __m256i words[2][2];
      for (std::size_t k = 0; k < 2; ++k) {
        const BlendAcross::Eight& eight = eights[i + k];
        const __m256i near = both_halves(eight.near), far = both_halves(eight.far);
        const __m256i high = both_halves(eight.high), low = both_halves(eight.low);
        const __m256i ab = two_rows(from[0] + eight.from, from[1] + eight.from);
        const __m256i cd = two_rows(from[2] + eight.from, from[3] + eight.from);
        words[0][k] = mix(_mm256_shuffle_epi8(ab, near), _mm256_shuffle_epi8(ab, far), high, low);
        words[1][k] = mix(_mm256_shuffle_epi8(cd, near), _mm256_shuffle_epi8(cd, far), high, low);
      }
      store_two(_mm256_packus_epi16(words[0][0], words[0][1]), to[0] + 8 * i, to[1] + 8 * i);
      store_two(_mm256_packus_epi16(words[1][0], words[1][1]), to[2] + 8 * i, to[3] + 8 * i);
    }
  }
}

ZCD_AVX2 void down_avx2(const BlendWeight& weight, const std::uint8_t* in, std::ptrdiff_t stride, int bytes,
                        std::uint8_t* out) {
  if (weight.high == 0 && weight.low == 0) {  // one tap: there may be no second row
    std::memcpy(out, in + (weight.swapped ? stride : 0), static_cast<std::size_t>(bytes));
    return;
  }
  const std::uint8_t* near_row = weight.swapped ? in + stride : in;
  const std::uint8_t* far_row = weight.swapped ? in : in + stride;
  const __m256i high = _mm256_set1_epi16(weight.high), low = _mm256_set1_epi16(weight.low), zero = _mm256_setzero_si256();
  for (int x = 0; x < bytes; x += 32) {
    const __m256i near = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(near_row + x));
    const __m256i far = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(far_row + x));
    const __m256i left = mix(_mm256_unpacklo_epi8(near, zero), _mm256_unpacklo_epi8(far, zero), high, low);
    const __m256i right = mix(_mm256_unpackhi_epi8(near, zero), _mm256_unpackhi_epi8(far, zero), high, low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_packus_epi16(left, right));
  }
}

constexpr BlendTable kAvx2{across_avx2, down_avx2};

}  // namespace
#endif

const BlendTable* blend_table() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return &kAvx2;
#endif
  return nullptr;
}

}  // namespace zcd::kernels
