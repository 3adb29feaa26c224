// Where rows lie in mapped files, to ask the kernel for their pages before they are read.
#include "core/read_ahead.h"

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/arguments.h"
#include "bindings/columns.h"
#include "bindings/read_ahead.h"

namespace zcd::py {
namespace {

Extents extents(const Column& column, const Rows& rows, std::size_t gap) {
  nb::gil_scoped_release release;  // offsets may have to come from the disk
  return Extents{joined(extents_of(column.table(), rows.data(), static_cast<std::int64_t>(rows.shape(0))), gap)};
}

nb::list pieces(const Extents& self) {
  nb::list out;
  for (const Extent& extent : self.extents)
    out.append(nb::make_tuple(reinterpret_cast<std::uintptr_t>(extent.begin), extent.end - extent.begin));
  return out;
}

std::size_t ask(const Extents& self, std::size_t room) {
  nb::gil_scoped_release release;
  return ask_for_pages(self.extents, room);
}

}  // namespace

void bind_read_ahead(nb::module_& m) {
  nb::class_<Extents>(m, "Extents")
      .def_prop_ro("bytes", [](const Extents& self) { return bytes_of(self.extents); })
      .def("pieces", &pieces)
      .def("ask", &ask, nb::arg("room"));
  nb::borrow<nb::class_<Column>>(m.attr("Column"))
      .def("extents", &extents, nb::arg("rows"), nb::arg("gap"), nb::keep_alive<0, 1>());
}

}  // namespace zcd::py
