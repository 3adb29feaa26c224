#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/fault.h"
#include "core/image.h"

namespace zcd {

// Twice Pillow's Image.MAX_IMAGE_PIXELS (1024 * 1024 * 1024 // 4 // 3): where Pillow raises DecompressionBombError.
constexpr std::int64_t kPixelLimit = 2 * (std::int64_t{1024} * 1024 * 1024 / 4 / 3);

struct JpegHeader {
  int stored_width = 0, stored_height = 0;
  int orientation = 1;
  int components = 0;
  bool progressive = false;
  bool usual = true;  // gray or YCbCr, Huffman codes, 8 bits: what every JPEG decoder takes, and takes alike

  bool swaps_sides() const { return orientation >= 5; }
  int width() const { return swaps_sides() ? stored_height : stored_width; }
  int height() const { return swaps_sides() ? stored_width : stored_height; }
};

// Decodes one JPEG after another. Not thread-safe: one a thread. Bytes must stay valid between open() and decode().
class JpegReader {
 public:
  JpegReader();
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads the header. `orient` false reports orientation 1 whatever the file says.
  // Throws Fault: unsupported for what libjpeg-turbo can't turn into RGB, damaged for the rest.
  JpegHeader open(const std::uint8_t* data, std::size_t size, bool orient, std::int64_t pixel_limit);

  // Decodes `rect` (in coordinates after orientation) of the opened image; the pixels lie in `stored` or, for a
  // rotated image, `oriented`. Equal in every byte to the same part of a full decode.
  Pixels decode(const Rect& rect, Buffer& stored, Buffer& oriented);

  // From now on decoding a progressive image, which may take long, ends with Fault(cancelled) once `cancel` is set. Null
  // for never.
  void watch(const std::atomic<bool>* cancel);

  // Decodes to the last line without keeping a pixel; throws when the data ends before it.
  void check_complete(Buffer& row);

  // Whose decoder of Huffman codes reads the images. Our own is the default, wherever it is found to work with this
  // libjpeg, and is much faster where only a region is wanted. No pixel and no fault depends on it, and tests see to
  // that; `own_unproven` is for the trial itself.
  enum class Huffman : unsigned char { own, own_unproven, libjpeg };
  void read_with(Huffman whose);
  // Whether the last image was decoded by our own.
  bool read_by_own() const;

 private:
  struct Impl;
  Pixels decode_stored(const Rect& rect, Buffer& out);
  std::unique_ptr<Impl> impl_;
  JpegHeader header_;
};

// Baseline, 4:2:0, Annex K Huffman tables: what libjpeg writes by default.
class JpegWriter {
 public:
  JpegWriter();
  ~JpegWriter();
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  // The bytes stay valid until the next call.
  const std::vector<std::uint8_t>& encode(const Pixels& pixels, int quality);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string jpeg_library();

}  // namespace zcd
