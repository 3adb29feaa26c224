#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/resize.h"

namespace zcd::py {

namespace nb = nanobind;

// A contiguous view of any object with Python's buffer protocol; releases it with the GIL held.
class BufferView {
 public:
  explicit BufferView(nb::handle object, bool writable = false) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

inline Filter filter_named(const std::string& name) {
  if (name == "nearest") return Filter::nearest;
  if (name == "bilinear") return Filter::bilinear;
  if (name == "bicubic") return Filter::bicubic;
  throw std::invalid_argument("interpolation is 'nearest', 'bilinear' or 'bicubic', not '" + name + "'");
}

void bind_encoded(nb::module_& m);
void bind_images(nb::module_& m);
void bind_loading(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_order(nb::module_& m);
void bind_read_ahead(nb::module_& m);
void bind_tokens(nb::module_& m);

}  // namespace zcd::py
