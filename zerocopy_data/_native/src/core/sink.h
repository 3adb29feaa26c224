#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/resize.h"

namespace zcd {

enum class Dtype : std::uint8_t { uint8, float16, float32 };
enum class Layout : std::uint8_t { nchw, nhwc };

constexpr std::size_t item_size(Dtype d) { return d == Dtype::uint8 ? 1 : d == Dtype::float16 ? 2 : 4; }

// What becomes of a finished pixel. `table` maps a byte of each channel to the value stored: normalisation is exact,
// whatever its formula, because there are only 256 inputs. Empty for uint8.
struct Format {
  Dtype dtype = Dtype::uint8;
  Layout layout = Layout::nchw;
  std::vector<std::uint32_t> table;  // [3][256], bits of the values

  std::size_t bytes(int w, int h) const { return std::size_t{3} * item_size(dtype) * w * h; }
};

// Writes rows into one sample's place in the caller's memory: mirrored, split into planes and converted as asked.
class FormatSink final : public RowSink {
 public:
  // `stream`: write past the caches where that is possible. For rows that come as fast as memory takes them and are not
  // read again soon; rows that a decoder makes come too slowly, their half-filled lines would go out twice.
  FormatSink(const Format& format, int w, int h, bool flip, std::uint8_t* out, bool stream = false);
  ~FormatSink() override;
  FormatSink(const FormatSink&) = delete;
  FormatSink& operator=(const FormatSink&) = delete;
  void row(int y, const std::uint8_t* rgb) override;

 private:
  const Format& format_;
  int w_, h_;
  bool flip_, stream_;
  std::uint8_t* out_;
  std::vector<std::uint8_t>& line_;
};

// Writes rows of bytes, perhaps mirrored: what lies between two stages.
class BytesSink final : public RowSink {
 public:
  BytesSink(std::uint8_t* out, int w, std::ptrdiff_t stride, bool flip) : out_(out), w_(w), stride_(stride), flip_(flip) {}
  void row(int y, const std::uint8_t* rgb) override;

 private:
  std::uint8_t* out_;
  int w_;
  std::ptrdiff_t stride_;
  bool flip_;
};

}  // namespace zcd
