// Single images: probing, decoding, encoding, resizing, checksums.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <stdexcept>

#include "bindings/arguments.h"
#include "core/crc32c.h"
#include "core/program.h"
#include "core/transcode.h"

namespace zcd::py {
namespace {

using Image = nb::ndarray<const std::uint8_t, nb::numpy, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using NewImage = nb::ndarray<std::uint8_t, nb::numpy, nb::shape<-1, -1, 3>>;

NewImage own(std::unique_ptr<std::uint8_t[]> bytes, int w, int h) {
  std::uint8_t* raw = bytes.release();
  nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
  const std::size_t shape[3] = {static_cast<std::size_t>(h), static_cast<std::size_t>(w), 3};
  return NewImage(raw, 3, shape, owner);
}

std::unique_ptr<std::uint8_t[]> allocate(int w, int h) {
  return std::unique_ptr<std::uint8_t[]>(new std::uint8_t[static_cast<std::size_t>(w) * h * kChannels]);
}

Pixels pixels_of(const Image& image) {
  const auto h = image.shape(0), w = image.shape(1);
  if (h == 0 || w == 0 || h > 65535 || w > 65535) throw std::invalid_argument("an image has 1 to 65535 pixels a side");
  return {image.data(), static_cast<int>(w), static_cast<int>(h), static_cast<std::ptrdiff_t>(w) * kChannels,
          image.data() + h * w * kChannels};
}

JpegHeader probe(nb::handle data, std::int64_t pixel_limit, bool check_end) {
  const BufferView view(data);
  nb::gil_scoped_release release;
  Scratch& scratch = thread_scratch();
  const JpegHeader header = scratch.reader.open(view.data(), view.size(), true, pixel_limit);
  // Nearly every sound file ends with its end marker; the few with bytes after it, or none, are looked at in full.
  const bool ends = view.size() >= 2 && view.data()[view.size() - 2] == 0xff && view.data()[view.size() - 1] == 0xd9;
  if (check_end && !ends) scratch.reader.check_complete(scratch.line);
  return header;
}

NewImage decode(nb::handle data, bool orient, std::int64_t pixel_limit) {
  const BufferView view(data);
  std::unique_ptr<std::uint8_t[]> out;
  int w, h;
  {
    nb::gil_scoped_release release;
    Scratch& scratch = thread_scratch();
    const JpegHeader header = scratch.reader.open(view.data(), view.size(), orient, pixel_limit);
    w = header.width();
    h = header.height();
    const Pixels pixels = scratch.reader.decode({0, 0, w, h}, scratch.stored, scratch.oriented);
    out = allocate(w, h);
    BytesSink sink(out.get(), w, std::ptrdiff_t{w} * kChannels, false);
    for (int y = 0; y < h; ++y) sink.row(y, pixels.row(y));
    scratch.trim();
  }
  return own(std::move(out), w, h);
}

// For tests: a region, in a reader of its own; `plain` with libjpeg's Huffman decoder.
nb::tuple decode_region(nb::handle data, int x, int y, int w, int h, bool plain) {
  const BufferView view(data);
  std::unique_ptr<std::uint8_t[]> out;
  bool by_own;
  {
    nb::gil_scoped_release release;
    JpegReader reader;
    Buffer stored, oriented;
    if (plain) reader.read_with(JpegReader::Huffman::libjpeg);
    reader.open(view.data(), view.size(), true, kPixelLimit);
    const Pixels pixels = reader.decode({x, y, w, h}, stored, oriented);
    by_own = reader.read_by_own();
    out = allocate(w, h);
    BytesSink sink(out.get(), w, std::ptrdiff_t{w} * kChannels, false);
    for (int row = 0; row < h; ++row) sink.row(row, pixels.row(row));
  }
  return nb::make_tuple(own(std::move(out), w, h), by_own);
}

NewImage resize(const Image& image, int width, int height, const std::string& interpolation) {
  const Pixels pixels = pixels_of(image);
  const Filter filter = filter_named(interpolation);
  if (width < 1 || height < 1 || width > 65535 || height > 65535)
    throw std::invalid_argument("a size has 1 to 65535 pixels a side");
  std::unique_ptr<std::uint8_t[]> out;
  {
    nb::gil_scoped_release release;
    out = allocate(width, height);
    Resizer& resizer = thread_scratch().resizer;
    const Rect part = resizer.prepare({pixels.w, pixels.h, width, height, filter, {0, 0, width, height}, true});
    BytesSink sink(out.get(), width, std::ptrdiff_t{width} * kChannels, false);
    const Pixels source{pixels.row(part.y) + std::ptrdiff_t{part.x} * kChannels, part.w, part.h, pixels.stride, pixels.end};
    resizer.run(source, sink);
  }
  return own(std::move(out), width, height);
}

void check_quality(int quality) {
  if (quality < 1 || quality > 100) throw std::invalid_argument("JPEG quality is 1 to 100");
}

nb::bytes encode(const Image& image, int quality) {
  check_quality(quality);
  const Pixels pixels = pixels_of(image);
  JpegWriter writer;
  const std::vector<std::uint8_t>* bytes;
  {
    nb::gil_scoped_release release;
    bytes = &writer.encode(pixels, quality);
  }
  return nb::bytes(bytes->data(), bytes->size());
}

nb::tuple transcode_bound(nb::handle data, int max_side, int quality, bool orient, std::int64_t pixel_limit) {
  check_quality(quality);
  if (max_side < 1) throw std::invalid_argument("max_side is at least one pixel");
  const BufferView view(data);
  Transcoded made{};
  {
    nb::gil_scoped_release release;
    made = transcode(view.data(), view.size(), max_side, quality, orient, pixel_limit);
  }
  return nb::make_tuple(nb::bytes(made.bytes->data(), made.bytes->size()), made.width, made.height);
}

std::uint32_t crc(nb::handle data, std::uint32_t value) {
  const BufferView view(data);
  nb::gil_scoped_release release;
  return crc32c(view.data(), view.size(), value);
}

nb::ndarray<std::uint32_t, nb::numpy, nb::ndim<1>> crc_rows(nb::handle data, std::size_t row_bytes) {
  const BufferView view(data);
  if (row_bytes == 0 || view.size() % row_bytes != 0)
    throw std::invalid_argument("the data is no whole number of rows");
  const std::size_t rows = view.size() / row_bytes;
  std::unique_ptr<std::uint32_t[]> sums(new std::uint32_t[rows]);
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < rows; ++i) sums[i] = crc32c(view.data() + i * row_bytes, row_bytes, 0, (rows - i - 1) * row_bytes);
  }
  std::uint32_t* raw = sums.release();
  nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<std::uint32_t*>(p); });
  const std::size_t shape[1] = {rows};
  return {raw, 1, shape, owner};
}

}  // namespace

void bind_images(nb::module_& m) {
  m.attr("DEFAULT_PIXEL_LIMIT") = kPixelLimit;
  m.def("jpeg_library", &jpeg_library);
  m.def("simd", &simd_name);
  m.def("crc32c", &crc, nb::arg("data"), nb::arg("value") = 0);
  m.def("crc32c_rows", &crc_rows, nb::arg("data"), nb::arg("row_bytes"));
  nb::class_<JpegHeader>(m, "JpegInfo")
      .def_prop_ro("width", &JpegHeader::width)
      .def_prop_ro("height", &JpegHeader::height)
      .def_ro("stored_width", &JpegHeader::stored_width)
      .def_ro("stored_height", &JpegHeader::stored_height)
      .def_ro("orientation", &JpegHeader::orientation)
      .def_ro("components", &JpegHeader::components)
      .def_ro("progressive", &JpegHeader::progressive);
  m.def("jpeg_probe", &probe, nb::arg("data"), nb::arg("pixel_limit") = kPixelLimit, nb::arg("check_end") = true);
  m.def("jpeg_decode", &decode, nb::arg("data"), nb::arg("orient") = true, nb::arg("pixel_limit") = kPixelLimit);
  m.def("jpeg_region", &decode_region, nb::arg("data"), nb::arg("x"), nb::arg("y"), nb::arg("width"), nb::arg("height"),
        nb::arg("plain") = false);
  m.def("jpeg_encode", &encode, nb::arg("image"), nb::arg("quality") = 90);
  m.def("jpeg_transcode", &transcode_bound, nb::arg("data"), nb::arg("max_side"), nb::arg("quality"),
        nb::arg("orient") = true, nb::arg("pixel_limit") = kPixelLimit);
  m.def("resize", &resize, nb::arg("image"), nb::arg("width"), nb::arg("height"), nb::arg("interpolation") = "bilinear");
}

}  // namespace zcd::py
