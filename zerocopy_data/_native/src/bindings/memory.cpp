#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "bindings/arguments.h"

namespace zcd::py {
namespace {

// A shared, writable map of a file; unmapped when the last lease and the last reference to it are gone. Needs no
// descriptor once it is made.
class Mapping {
 public:
  Mapping(int descriptor, std::size_t size) : size_(size) {
    if (size == 0) throw std::invalid_argument("a mapping has at least one byte");
    address_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (address_ == MAP_FAILED) {
      PyErr_SetFromErrno(PyExc_OSError);
      throw nb::python_error();
    }
    madvise(address_, size, MADV_HUGEPAGE);  // fewer faults, where the kernel allows it for shared memory
  }
  ~Mapping() { munmap(address_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* address() const { return address_; }
  std::size_t size() const { return size_; }
  // Gives the file's pages back to the system: it reads as zeros from now on, for everybody.
  void punch() const { madvise(address_, size_, MADV_REMOVE); }

 private:
  void* address_;
  std::size_t size_;
};

// A writable buffer over a mapping. What is made from it holds it through the buffer protocol, and `on_end` is called
// when nobody does any more. A destructor and no weakref callback: those run before the finalizers of other objects in
// the same garbage cycle, which may still read the memory.
class Lease {
 public:
  Lease(std::shared_ptr<Mapping> mapping, nb::object on_end) : mapping_(std::move(mapping)), on_end_(std::move(on_end)) {}
  ~Lease() {
    if (!nb::is_alive()) return;
    nb::error_scope keep;  // we may be called while an error is on its way
    PyObject* result = PyObject_CallNoArgs(on_end_.ptr());
    if (result == nullptr)
      PyErr_WriteUnraisable(on_end_.ptr());
    else
      Py_DECREF(result);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const Mapping& mapping() const { return *mapping_; }

 private:
  std::shared_ptr<Mapping> mapping_;
  nb::object on_end_;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  const Mapping& mapping = nb::inst_ptr<Lease>(self)->mapping();
  return PyBuffer_FillInfo(view, self, mapping.address(), static_cast<Py_ssize_t>(mapping.size()), 0, flags);
}

PyType_Slot lease_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

void bind_memory(nb::module_& m) {
  nb::class_<Mapping>(m, "Mapping")
      .def(nb::init<int, std::size_t>(), nb::arg("descriptor"), nb::arg("size"))
      .def_prop_ro("address", [](const Mapping& self) { return reinterpret_cast<std::uintptr_t>(self.address()); })
      .def_prop_ro("size", &Mapping::size)
      .def("punch", &Mapping::punch);
  nb::class_<Lease>(m, "Lease", nb::type_slots(lease_slots))
      .def(nb::init<std::shared_ptr<Mapping>, nb::object>(), nb::arg("mapping"), nb::arg("on_end"));
}

}  // namespace zcd::py
