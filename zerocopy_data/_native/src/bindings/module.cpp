#include <nanobind/nanobind.h>

#include "bindings/arguments.h"
#include "core/fault.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The compiled core of zerocopy_data.";
  // Objects of ours may live to the interpreter's end, which then frees everything: no report is wanted.
  nb::set_leak_warnings(false);

  // Kept for ever: the translator below may be asked until the interpreter is gone.
  static PyObject* image_error =
      PyErr_NewException("zerocopy_data._native._core.ImageError", PyExc_ValueError, nullptr);
  static PyObject* unsupported_image =
      PyErr_NewException("zerocopy_data._native._core.UnsupportedImage", image_error, nullptr);
  static PyObject* misfit_error =
      PyErr_NewException("zerocopy_data._native._core.ImageMisfit", image_error, nullptr);
  m.attr("ImageMisfit") = nb::borrow(misfit_error);
  m.attr("ImageError") = nb::borrow(image_error);
  m.attr("UnsupportedImage") = nb::borrow(unsupported_image);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const zcd::Fault& fault) {
      PyErr_SetString(fault.kind == zcd::FaultKind::unsupported ? unsupported_image
                      : fault.kind == zcd::FaultKind::misfit    ? misfit_error
                      : fault.kind == zcd::FaultKind::system    ? PyExc_OSError
                                                                : image_error,
                      fault.what());
    }
  });
  zcd::py::bind_images(m);
  zcd::py::bind_loading(m);
  zcd::py::bind_encoded(m);
  zcd::py::bind_memory(m);
  zcd::py::bind_order(m);
  zcd::py::bind_read_ahead(m);
  zcd::py::bind_tokens(m);
}
