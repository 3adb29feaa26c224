#pragma once

#include <cstddef>
#include <cstdint>

namespace zcd {

// EXIF orientation (1 to 8) of a JPEG, 1 when it has none. Reads marker segments up to the first scan, as Pillow's
// getexif() does: the Exif segment first, else `tiff:Orientation` in XMP. Never fails: nonsense means 1.
int jpeg_orientation(const std::uint8_t* data, std::size_t size);

}  // namespace zcd
