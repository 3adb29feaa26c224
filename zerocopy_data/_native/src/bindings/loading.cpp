// What the loader drives: programs of image operations, columns over shards, batches, the thread pool.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include "bindings/arguments.h"
#include "bindings/columns.h"
#include "core/batch.h"
#include "core/program.h"

namespace zcd::py {
namespace {

using Image = nb::ndarray<const std::uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using LookUp = nb::ndarray<const std::uint32_t, nb::shape<3, 256>, nb::c_contig, nb::device::cpu>;

Dtype dtype_named(const std::string& name) {
  if (name == "uint8") return Dtype::uint8;
  if (name == "float16") return Dtype::float16;
  if (name == "float32") return Dtype::float32;
  throw std::invalid_argument("dtype is 'uint8', 'float16' or 'float32', not '" + name + "'");
}

int side(int n) {
  if (n < 1 || n > 65535) throw std::invalid_argument("a size has 1 to 65535 pixels a side");
  return n;
}

// One file's bytes.
nb::bytes read_file(const FileColumn& column, std::int64_t row) {
  Buffer room;
  Value value;
  {
    nb::gil_scoped_release release;
    value = column.files().read(row, room);
  }
  return nb::bytes(reinterpret_cast<const char*>(value.data), value.size);
}

// Threads that one loader has reserved; gives them back when released or dropped. Inherited by a forked child it is void.
class Threads {
 public:
  explicit Threads(int count) : count_(count), generation_(pool_generation()) {
    if (count < 1 || count > 4096) throw std::invalid_argument("a loader has 1 to 4096 threads");
    Pool& pool = Pool::instance();
    nb::gil_scoped_release release;
    pool.reserve(count);
  }
  ~Threads() { release(); }
  void release() {
    const int count = std::exchange(count_, 0);
    if (count == 0 || generation_ != pool_generation()) return;
    Pool& pool = Pool::instance();
    nb::gil_scoped_release release;
    pool.release(count);
  }

 private:
  int count_;
  std::uint64_t generation_;
};

// How many samples each of the destinations holds.
std::size_t room_of(const Program& program, const std::vector<std::unique_ptr<BufferView>>& outs) {
  std::size_t room = SIZE_MAX;
  for (std::size_t v = 0; v < outs.size() && v < program.views.size(); ++v) {
    const View& view = program.views[v];
    const std::size_t stride = view.format.bytes(view.width, view.height);
    if (stride > 0) room = std::min(room, outs[v]->size() / stride);
  }
  return room;
}

// The destinations must hold n samples each.
Destination destination(const Program& program, const std::vector<std::unique_ptr<BufferView>>& outs, std::size_t n) {
  if (outs.size() != program.views.size()) throw std::invalid_argument("one output buffer a view is needed");
  Destination to;
  for (std::size_t v = 0; v < outs.size(); ++v) {
    const View& view = program.views[v];
    if (view.width == 0) throw std::invalid_argument("a view without a fixed size can't fill a batch");
    const std::size_t stride = view.format.bytes(view.width, view.height);
    if (outs[v]->size() / stride < n) throw std::invalid_argument("an output buffer is too small for the batch");
    if (reinterpret_cast<std::uintptr_t>(outs[v]->data()) % item_size(view.format.dtype) != 0)
      throw std::invalid_argument("an output buffer is not aligned to its dtype");
    to.outs.push_back(outs[v]->data());
    to.strides.push_back(stride);
  }
  return to;
}

std::vector<std::unique_ptr<BufferView>> writable(const std::vector<nb::object>& objects) {
  std::vector<std::unique_ptr<BufferView>> views;
  for (const auto& o : objects) views.push_back(std::make_unique<BufferView>(o, true));
  return views;
}

template <typename AnyColumn>
nb::list decode(const AnyColumn& column, const Program& program, const Rows& rows, std::uint64_t seed, std::uint64_t epoch,
                std::optional<Rows> keys, const std::vector<nb::object>& outs, bool pooled, const Cancel* cancel,
                std::optional<Rows> places) {
  column.check(rows);
  const auto views = writable(outs);
  const Destination to = destination(program, views, places ? 0 : rows.shape(0));
  const Picks picked = picks(rows, keys, places, room_of(program, views));
  Pool* pool = pooled ? &Pool::instance() : nullptr;
  std::vector<Outcome> outcomes;
  {
    nb::gil_scoped_release release;
    outcomes = decode_batch(column.image(), program, picked, seed, epoch, to, cancel ? &cancel->flag : nullptr, pool);
  }
  return outcomes_list(outcomes);
}

// One sample given as pixels, into place `index` of a batch: for images that Pillow decoded.
void place_pixels(const Program& program, const Image& image, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                  const std::vector<nb::object>& outs, std::size_t index) {
  const auto views = writable(outs);
  if (index == SIZE_MAX) throw std::invalid_argument("an output buffer is too small for the batch");  // + 1 would wrap
  Destination to = destination(program, views, index + 1);
  for (std::size_t v = 0; v < to.outs.size(); ++v) to.outs[v] += to.strides[v] * index;
  const auto h = image.shape(0), w = image.shape(1);
  if (h < 1 || w < 1 || h > 65535 || w > 65535) throw std::invalid_argument("an image has 1 to 65535 pixels a side");
  nb::gil_scoped_release release;
  Sample one(program, thread_scratch());
  one.open_pixels({image.data(), static_cast<int>(w), static_cast<int>(h), static_cast<std::ptrdiff_t>(w) * kChannels,
                   image.data() + h * w * kChannels});
  one.plan({seed, epoch, sample});
  one.run(to.outs.data(), true);
}

// Makes one sample of any size; returns (bytes, height, width) a view.
nb::list finish_one(Sample& one, const Program& program, const Key& key) {
  std::vector<std::unique_ptr<std::uint8_t[]>> memory;
  std::vector<std::pair<int, int>> sizes;
  {
    nb::gil_scoped_release release;
    const Recipe& recipe = one.plan(key);
    std::vector<std::uint8_t*> outs;
    for (std::size_t v = 0; v < recipe.size(); ++v) {
      sizes.push_back(result_size(recipe[v]));
      memory.emplace_back(new std::uint8_t[program.views[v].format.bytes(sizes[v].first, sizes[v].second)]);
      outs.push_back(memory[v].get());
    }
    one.run(outs.data(), false);
    thread_scratch().trim();
  }
  nb::list results;
  for (std::size_t v = 0; v < memory.size(); ++v) {
    const std::size_t bytes = program.views[v].format.bytes(sizes[v].first, sizes[v].second);
    std::uint8_t* raw = memory[v].release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    const std::size_t shape[1] = {bytes};
    results.append(nb::make_tuple(nb::ndarray<std::uint8_t, nb::numpy, nb::ndim<1>>(raw, 1, shape, owner), sizes[v].second,
                                  sizes[v].first));
  }
  return results;
}

nb::list run_encoded(const Program& program, nb::handle data, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  const BufferView view(data);
  Sample one(program, thread_scratch());
  one.open_jpeg(view.data(), view.size());
  return finish_one(one, program, {seed, epoch, sample});
}

nb::list run_pixels(const Program& program, const Image& image, std::uint64_t seed, std::uint64_t epoch,
                    std::uint64_t sample) {
  const auto h = image.shape(0), w = image.shape(1);
  if (h < 1 || w < 1 || h > 65535 || w > 65535) throw std::invalid_argument("an image has 1 to 65535 pixels a side");
  Sample one(program, thread_scratch());
  one.open_pixels({image.data(), static_cast<int>(w), static_cast<int>(h), static_cast<std::ptrdiff_t>(w) * kChannels,
                   image.data() + h * w * kChannels});
  return finish_one(one, program, {seed, epoch, sample});
}

using StepTuple = std::tuple<std::string, int, int, int, int>;
std::vector<std::vector<StepTuple>> steps_of(const Program& program, int width, int height, std::uint64_t seed,
                                             std::uint64_t epoch, std::uint64_t sample) {
  std::vector<std::vector<StepTuple>> out;
  for (std::size_t v = 0; v < program.views.size(); ++v) {
    out.emplace_back();
    for (const Step& s : resolve(program.views[v].ops, side(width), side(height), {seed, epoch, sample},
                                 static_cast<std::uint32_t>(v))) {
      const char* name = s.kind == Step::Kind::crop ? "crop" : s.kind == Step::Kind::resize ? "resize" : "flip";
      out.back().emplace_back(name, s.rect.x, s.rect.y, s.rect.w, s.rect.h);
    }
  }
  return out;
}

// The least that any loader must do: `threads` plain threads, each with its share of the blobs, decode and resize into
// one buffer of their own. Returns images per second over `rounds` passes.
double bench_decode(const std::vector<nb::object>& blobs, const Program& program, int threads, int rounds) {
  std::vector<std::unique_ptr<BufferView>> views;
  for (const auto& b : blobs) views.push_back(std::make_unique<BufferView>(b));
  if (threads < 1 || views.empty() || rounds < 1) throw std::invalid_argument("threads, blobs and rounds are at least one");
  std::size_t bytes = 0;
  for (const View& v : program.views) {
    if (v.width == 0) throw std::invalid_argument("a view without a fixed size can't be measured");
    bytes += v.format.bytes(v.width, v.height);
  }
  nb::gil_scoped_release release;
  std::atomic<bool> failed{false};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> crew;
  std::atomic<std::int64_t> next{0};
  const auto total = static_cast<std::int64_t>(views.size()) * rounds;
  for (int t = 0; t < threads; ++t)
    crew.emplace_back([&] {
      std::vector<std::uint8_t> memory(bytes);
      std::vector<std::uint8_t*> outs;
      std::uint8_t* at = memory.data();
      for (const View& v : program.views) {
        outs.push_back(at);
        at += v.format.bytes(v.width, v.height);
      }
      Scratch scratch;
      for (std::int64_t i = next.fetch_add(1); i < total; i = next.fetch_add(1)) {
        const auto& blob = views[static_cast<std::size_t>(i) % views.size()];
        try {
          Sample one(program, scratch);
          one.open_jpeg(blob->data(), blob->size());
          one.plan({0, static_cast<std::uint64_t>(i) / views.size(), static_cast<std::uint64_t>(i) % views.size()});
          one.run(outs.data(), true);
        } catch (const std::exception&) {
          failed = true;
        }
      }
    });
  for (auto& c : crew) c.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (failed) throw Fault(FaultKind::damaged, "a blob could not be decoded");
  return static_cast<double>(total) / took.count();
}

}  // namespace

void bind_loading(nb::module_& m) {
  nb::class_<Op>(m, "Op")
      .def_static("random_resized_crop",
                  [](int height, int width, std::pair<double, double> scale, std::pair<double, double> ratio,
                     const std::string& interpolation) {
                    Op op;
                    op.kind = OpKind::random_resized_crop;
                    op.height = side(height);
                    op.width = side(width);
                    std::tie(op.scale_low, op.scale_high) = scale;
                    std::tie(op.ratio_low, op.ratio_high) = ratio;
                    op.filter = filter_named(interpolation);
                    return op;
                  },
                  nb::arg("height"), nb::arg("width"), nb::arg("scale"), nb::arg("ratio"), nb::arg("interpolation"))
      .def_static("random_crop",
                  [](int height, int width, std::array<int, 4> padding, bool pad_if_needed, std::array<int, 3> fill) {
                    Op op;
                    op.kind = OpKind::random_crop;
                    op.height = side(height);
                    op.width = side(width);
                    for (const int p : padding)
                      if (p < 0 || p > 65535) throw std::invalid_argument("padding is 0 to 65535 pixels");
                    op.padding = padding;
                    op.pad_if_needed = pad_if_needed;
                    for (std::size_t c = 0; c < 3; ++c) op.fill[c] = static_cast<std::uint8_t>(fill[c]);
                    return op;
                  },
                  nb::arg("height"), nb::arg("width"), nb::arg("padding"), nb::arg("pad_if_needed"), nb::arg("fill"))
      .def_static("center_crop",
                  [](int height, int width) {
                    Op op;
                    op.kind = OpKind::center_crop;
                    op.height = side(height);
                    op.width = side(width);
                    return op;
                  },
                  nb::arg("height"), nb::arg("width"))
      .def_static("resize",
                  [](int height, std::optional<int> width, int max_size, const std::string& interpolation) {
                    Op op;
                    op.kind = OpKind::resize;
                    op.height = side(height);
                    op.width = width ? side(*width) : 0;
                    op.max_size = max_size;
                    op.filter = filter_named(interpolation);
                    return op;
                  },
                  nb::arg("height"), nb::arg("width").none(), nb::arg("max_size"), nb::arg("interpolation"))
      .def_static("horizontal_flip",
                  [](double p) {
                    Op op;
                    op.kind = OpKind::horizontal_flip;
                    op.probability = p;
                    return op;
                  },
                  nb::arg("p"));

  nb::class_<View>(m, "View").def(
      "__init__",
      [](View* self, std::vector<Op> ops, const std::string& dtype, const std::string& layout, std::optional<LookUp> table,
         int height, int width) {
        View v;
        v.ops = std::move(ops);
        v.format.dtype = dtype_named(dtype);
        if (layout != "nchw" && layout != "nhwc") throw std::invalid_argument("layout is 'nchw' or 'nhwc'");
        v.format.layout = layout == "nchw" ? Layout::nchw : Layout::nhwc;
        if ((v.format.dtype == Dtype::uint8) == table.has_value())
          throw std::invalid_argument("a table of values belongs to float dtypes, and only to them");
        if (table) v.format.table.assign(table->data(), table->data() + 3 * 256);
        if (height < 0 || width < 0 || height > 65535 || width > 65535) throw std::invalid_argument("size out of range");
        v.height = height;
        v.width = width;
        new (self) View(std::move(v));
      },
      nb::arg("ops"), nb::arg("dtype"), nb::arg("layout"), nb::arg("table").none(), nb::arg("height"), nb::arg("width"));

  nb::class_<Program>(m, "Program")
      .def("__init__",
           [](Program* self, std::vector<View> views, bool orient, std::int64_t pixel_limit, bool may_go_down_first) {
             if (views.empty()) throw std::invalid_argument("a program has at least one view");
             new (self) Program{std::move(views), orient, pixel_limit, may_go_down_first};
           },
           nb::arg("views"), nb::arg("orient") = true, nb::arg("pixel_limit") = kPixelLimit,
           nb::arg("may_go_down_first") = true)
      .def("steps", &steps_of, nb::arg("width"), nb::arg("height"), nb::arg("seed"), nb::arg("epoch"), nb::arg("sample"))
      .def("run_encoded", &run_encoded, nb::arg("data"), nb::arg("seed"), nb::arg("epoch"), nb::arg("sample"))
      .def("run_pixels", &run_pixels, nb::arg("image"), nb::arg("seed"), nb::arg("epoch"), nb::arg("sample"))
      .def("place_pixels", &place_pixels, nb::arg("image"), nb::arg("seed"), nb::arg("epoch"), nb::arg("sample"),
           nb::arg("outs"), nb::arg("index"));

  nb::class_<Column>(m, "Column")
      .def(nb::init<std::vector<std::int64_t>, int, int, bool>(), nb::arg("shard_starts"), nb::arg("raw_width") = 0,
           nb::arg("raw_height") = 0, nb::arg("verify") = true)
      .def("set_shard", &Column::set_shard, nb::arg("shard"), nb::arg("chunks"))
      .def("missing", &Column::missing, nb::arg("rows"))
      .def("decode", &decode<Column>, nb::arg("program"), nb::arg("rows"), nb::arg("seed"), nb::arg("epoch"),
           nb::arg("keys").none(), nb::arg("outs"), nb::arg("pooled") = true, nb::arg("cancel").none() = nb::none(),
           nb::arg("places").none() = nb::none())
      .def("gather",
           [](const Column& self, const Rows& rows, std::size_t item, nb::object out, std::optional<Rows> places) {
             self.check(rows);
             const BufferView view(out, true);
             const Picks picked = picks(rows, std::nullopt, places, item == 0 ? 0 : view.size() / item);
             std::vector<Outcome> outcomes;
             {
               nb::gil_scoped_release release;
               outcomes = gather(self.table(), picked, item, self.image().verify, view.data());
             }
             return outcomes_list(outcomes);
           },
           nb::arg("rows"), nb::arg("item"), nb::arg("out"), nb::arg("places").none() = nb::none());

  nb::class_<FileColumn>(m, "FileColumn")
      .def(nb::init<const nb::bytes&, nb::handle, const Rows&, std::optional<Rows>>(), nb::arg("prefix"), nb::arg("paths"),
           nb::arg("offsets"), nb::arg("rows").none() = nb::none())
      .def("decode", &decode<FileColumn>, nb::arg("program"), nb::arg("rows"), nb::arg("seed"), nb::arg("epoch"),
           nb::arg("keys").none(), nb::arg("outs"), nb::arg("pooled") = true, nb::arg("cancel").none() = nb::none(),
           nb::arg("places").none() = nb::none())
      .def("path",
           [](const FileColumn& self, std::int64_t row) {
             const std::string path = self.files().path(row);
             return nb::bytes(path.data(), path.size());
           },
           nb::arg("row"))
      .def("read", &read_file, nb::arg("row"));

  nb::class_<Cancel>(m, "Cancel").def(nb::init<>()).def("set", [](Cancel& self) { self.flag = true; });
  nb::class_<Threads>(m, "Threads").def(nb::init<int>(), nb::arg("count")).def("release", &Threads::release);
  m.def("pool_threads", [] { return Pool::instance().threads(); });
  m.def("bench_decode", &bench_decode, nb::arg("blobs"), nb::arg("program"), nb::arg("threads"), nb::arg("rounds") = 1);
}

}  // namespace zcd::py
