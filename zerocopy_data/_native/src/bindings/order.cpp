#include <nanobind/nanobind.h>

#include <cstring>
#include <string>

#include "bindings/arguments.h"
#include "core/permutation.h"

namespace zcd::py {

void bind_order(nb::module_& m) {
  nb::class_<Permutation>(m, "Permutation")
      .def(nb::init<std::uint64_t, std::uint64_t, std::uint64_t>(), nb::arg("n"), nb::arg("seed"), nb::arg("epoch"))
      .def(
          "values",
          [](const Permutation& self, nb::object positions, nb::object out) {
            const BufferView from(positions);
            const BufferView to(out, true);
            constexpr std::size_t item = sizeof(std::int64_t);
            if (from.size() % item != 0 || from.size() != to.size())
              throw std::invalid_argument("positions and out are int64 and of one length");
            const std::size_t count = from.size() / item;
            std::size_t bad = count;
            {
              nb::gil_scoped_release release;
              for (std::size_t i = 0; i < count; ++i) {
                std::uint64_t position;  // a negative one becomes one beyond any n
                std::memcpy(&position, from.data() + i * item, item);
                if (position >= self.size()) {
                  bad = i;
                  break;
                }
                const std::uint64_t value = self(position);
                std::memcpy(to.data() + i * item, &value, item);
              }
            }
            if (bad < count)
              throw nb::index_error(("position number " + std::to_string(bad) + " is outside the permutation of " +
                                     std::to_string(self.size()))
                                        .c_str());
          },
          nb::arg("positions"), nb::arg("out"));
}

}  // namespace zcd::py
