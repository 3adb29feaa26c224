// What decoders on other devices are given: encoded bytes in one block, and what is to be done with each image.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "bindings/arguments.h"
#include "bindings/columns.h"
#include "core/encoded.h"

namespace zcd::py {
namespace {

template <typename T>
T* aligned(const BufferView& view, std::size_t items, const char* what) {
  if (view.size() / sizeof(T) < items)
    throw std::invalid_argument(std::string("the buffer of the ") + what + " is too small for the batch");
  if (reinterpret_cast<std::uintptr_t>(view.data()) % alignof(T) != 0)
    throw std::invalid_argument(std::string("the buffer of the ") + what + " is not aligned");
  return reinterpret_cast<T*>(view.data());
}

template <typename AnyColumn>
nb::tuple gather(const AnyColumn& column, const Program& program, const Rows& rows, std::uint64_t seed, std::uint64_t epoch,
                 std::optional<Rows> keys, nb::handle block, nb::handle offsets, nb::handle geometry, const Cancel* cancel) {
  column.check(rows);
  if (column.image().raw_width != 0) throw std::invalid_argument("raw images are not encoded");
  for (const View& view : program.views)
    if (view.width == 0) throw std::invalid_argument("a view without a fixed size can't fill a batch");
  const BufferView bytes(block, true), begins(offsets, true), geometries(geometry, true);
  const std::size_t n = rows.shape(0), views = program.views.size();
  if (n > SIZE_MAX / sizeof(Geometry) / views - 1) throw std::invalid_argument("a batch of more rows than memory holds");
  const EncodedBatch to{bytes.data(), bytes.size(), aligned<std::int64_t>(begins, n + 1, "offsets"),
                        aligned<Geometry>(geometries, n * views, "geometry")};
  const Picks picked = picks(rows, keys, std::nullopt, n);
  std::vector<Outcome> outcomes;
  std::size_t needed = 0;
  {
    nb::gil_scoped_release release;
    needed = gather_encoded(column.image(), program, picked, seed, epoch, to, cancel ? &cancel->flag : nullptr, outcomes);
  }
  return nb::make_tuple(needed, outcomes_list(outcomes));
}

template <typename AnyColumn>
void add_gather(nb::module_& m, const char* name) {
  nb::borrow<nb::class_<AnyColumn>>(m.attr(name))
      .def("gather_encoded", &gather<AnyColumn>, nb::arg("program"), nb::arg("rows"), nb::arg("seed"), nb::arg("epoch"),
           nb::arg("keys").none(), nb::arg("block"), nb::arg("offsets"), nb::arg("geometry"), nb::arg("cancel").none() = nb::none());
}

}  // namespace

void bind_encoded(nb::module_& m) {
  add_gather<Column>(m, "Column");
  add_gather<FileColumn>(m, "FileColumn");
}

}  // namespace zcd::py
