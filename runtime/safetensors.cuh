// safetensors.cuh: checkpoints in the format of github.com/huggingface/safetensors, which its own reader opens.
//
//   8 bytes     length H of the header, little endian
//   H bytes     {"__metadata__":{"key":"text",...},"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
//               and spaces, so that the tensors start at a multiple of 256 bytes
//   the rest    the tensors, C order, little endian, back to back without gaps; offsets count from here
//
// A file is a pure function of what is saved: metadata sorted by key, tensors by element size (large first, so that
// each is aligned), otherwise in the order given. Saved atomically (files.cuh). The reader maps the file and checks all
// of the above: whatever is wrong becomes an Error that names the path and what is wrong.
#pragma once
#include <algorithm>
#include <map>
#include <sys/mman.h>

#include "files.cuh"
#include "json.cuh"

namespace runtime {

struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;  // one of dtype_bytes()
  const void *data = nullptr;
};

// Bytes of an element, 0 for an unknown dtype
inline int64_t dtype_bytes(const std::string &dtype) {
  static const std::map<std::string, int64_t> table = {{"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4}, {"I32", 4},
                                                       {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"U16", 2},
                                                       {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  const auto found = table.find(dtype);
  return found == table.end() ? 0 : found->second;
}
// Elements of a shape ([] is one); false where a dimension is negative or the bytes do not fit 63 bits
inline bool count_elements(const std::vector<int64_t> &shape, int64_t &n) {
  n = 1;
  for (int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > INT64_MAX / 8) return false;
  return true;
}
inline std::string shape_text(const std::vector<int64_t> &shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); i++) s += (i ? "," : "") + std::to_string(shape[i]);
  return s + "]";
}

inline std::string safetensors_header(const std::vector<const TensorView *> &order, const std::string &path,
                                      const std::map<std::string, std::string> &metadata) {
  const auto refuse = [&](const std::string &what) { return Error("cannot save " + path + ": " + what); };
  json::Members members, texts;
  std::set<std::string> names;
  for (const auto &entry : metadata) {
    if (!json::valid_utf8(entry.first) || !json::valid_utf8(entry.second))
      throw refuse("metadata \"" + entry.first + "\" is not UTF-8; write bytes as hexadecimal");
    texts.emplace_back(entry.first, entry.second);
  }
  if (!texts.empty()) members.emplace_back("__metadata__", json::Literal::raw(json::object(texts)));
  int64_t at = 0, n = 0;
  for (const TensorView *t : order) {
    if (t->name.empty() || t->name == "__metadata__" || !json::valid_utf8(t->name) || !names.insert(t->name).second)
      throw refuse("the tensor name \"" + t->name + "\" is empty, reserved, not UTF-8, or stands twice");
    if (!dtype_bytes(t->dtype)) throw refuse(t->name + " has the unknown dtype " + t->dtype);
    if (!count_elements(t->shape, n)) throw refuse(t->name + " has the impossible shape " + shape_text(t->shape));
    const int64_t end = at + n * dtype_bytes(t->dtype);
    const json::Literal offsets = json::Literal::raw(json::array({at, end}));
    members.emplace_back(t->name, json::Literal::raw(json::object({{"dtype", t->dtype},
                                                                   {"shape", json::Literal::raw(shape_text(t->shape))},
                                                                   {"data_offsets", offsets}})));
    at = end;
  }
  std::string header = json::object(members);
  header.resize((size_t)(round_up((int64_t)header.size() + 8, ALIGNMENT) - 8), ' ');
  return header;
}

inline void save_safetensors(const std::string &path, const std::vector<TensorView> &tensors,
                             const std::map<std::string, std::string> &metadata) {
  std::vector<const TensorView *> order;
  for (const TensorView &t : tensors) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const TensorView *a, const TensorView *b) {
    return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
  });
  const std::string header = safetensors_header(order, path, metadata);
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(header.size() >> (8 * i));
  AtomicFile file(path);
  file.write(length, sizeof length);
  file.write(header.data(), header.size());
  for (const TensorView *t : order) {
    int64_t n = 0;
    count_elements(t->shape, n);
    file.write(t->data, (size_t)(n * dtype_bytes(t->dtype)));
  }
  file.commit();
}

// A mapped file; tensors point into it and live as long as it does
struct SafetensorsFile {
  std::string path;
  std::map<std::string, std::string> metadata;
  std::vector<TensorView> tensors;  // in the order of the data
  int64_t file_bytes = 0, data_bytes = 0;

  explicit SafetensorsFile(const std::string &path)
      : path(path) {
    map_file();
    try {
      read_header();
    } catch (...) {
      munmap((void *)bytes, (size_t)file_bytes);
      throw;
    }
  }
  ~SafetensorsFile() { munmap((void *)bytes, (size_t)file_bytes); }
  SafetensorsFile(const SafetensorsFile &) = delete;
  SafetensorsFile &operator=(const SafetensorsFile &) = delete;

  const TensorView *find(const std::string &name) const {
    const auto found = index.find(name);
    return found == index.end() ? nullptr : &tensors[found->second];
  }
  // The tensor, which must have this dtype and shape; Error otherwise
  const TensorView &at(const std::string &name, const std::string &dtype, const std::vector<int64_t> &shape) const {
    const TensorView *t = find(name);
    if (!t) refuse("there is no tensor " + name);
    if (t->dtype != dtype || t->shape != shape)
      refuse(name + " is " + t->dtype + shape_text(t->shape) + ", need " + dtype + shape_text(shape));
    return *t;
  }
  const std::string &text(const std::string &key) const {
    const auto found = metadata.find(key);
    if (found == metadata.end()) refuse("the metadata have no \"" + key + "\"; is this a checkpoint of train_gpt?");
    return found->second;
  }

 private:
  const unsigned char *bytes = nullptr;
  std::map<std::string, size_t> index;

  [[noreturn]] void refuse(const std::string &what) const { throw Error(path + ": " + what); }

  void map_file() {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) throw system_error("open", path, errno);
    struct stat info;
    const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (regular) file_bytes = info.st_size;
    const bool enough = regular && file_bytes >= 8;
    void *at = enough ? mmap(nullptr, (size_t)file_bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    const int code = errno;
    close(fd);
    if (!regular) refuse("not a file");
    if (!enough) refuse(format("not a safetensors file: %lld bytes, a header needs 8", (long long)file_bytes));
    if (at == MAP_FAILED) throw system_error("map", path, code);
    bytes = (const unsigned char *)at;
  }

  void read_header() {
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length > (uint64_t)file_bytes - 8)
      refuse(
          format("cut short, or not a safetensors file: the header should have %llu bytes, the file has %lld after "
                 "its length",
                 (unsigned long long)length, (long long)file_bytes - 8));
    data_bytes = file_bytes - 8 - (int64_t)length;
    const json::Value header = json::parse({(const char *)bytes + 8, (size_t)length}, path);
    if (header.kind != json::Value::object) refuse("the header is not a JSON object");
    std::vector<std::pair<int64_t, TensorView>> found;  // with the end of the data
    for (size_t i = 0; i < header.keys.size(); i++)
      if (header.keys[i] == "__metadata__")
        read_metadata(header.items[i]);
      else
        found.push_back(read_tensor(header.keys[i], header.items[i], bytes + 8 + length));
    std::stable_sort(found.begin(), found.end(), [](const auto &a, const auto &b) {
      return std::make_pair(a.second.data, a.first) < std::make_pair(b.second.data, b.first);
    });
    int64_t end = 0;
    for (auto &entry : found) {
      const int64_t start = (const unsigned char *)entry.second.data - (bytes + 8 + length);
      if (start != end)
        refuse(format("%s starts at offset %lld of the data, which %s the tensor before it (end %lld)",
                      entry.second.name.c_str(), (long long)start, start < end ? "overlaps" : "leaves a gap after",
                      (long long)end));
      end = entry.first;
      index[entry.second.name] = tensors.size();
      tensors.push_back(std::move(entry.second));
    }
    if (end != data_bytes)
      refuse(format("the tensors end at offset %lld of the data, the file goes on to %lld", (long long)end,
                    (long long)data_bytes));
  }

  void read_metadata(const json::Value &v) {
    if (v.kind != json::Value::object) refuse("__metadata__ is not a JSON object");
    for (size_t i = 0; i < v.keys.size(); i++) {
      if (v.items[i].kind != json::Value::string) refuse("metadata \"" + v.keys[i] + "\" is not a string");
      metadata[v.keys[i]] = v.items[i].text;
    }
  }

  std::pair<int64_t, TensorView> read_tensor(const std::string &name, const json::Value &v, const unsigned char *data) {
    const json::Value *dtype = v.find("dtype"), *shape = v.find("shape"), *offsets = v.find("data_offsets");
    if (v.kind != json::Value::object || v.keys.size() != 3 || !dtype || !shape || !offsets)
      refuse("tensor " + name + " needs exactly dtype, shape and data_offsets");
    TensorView t;
    t.name = name;
    t.dtype = dtype->text;
    const int64_t size = dtype->kind == json::Value::string ? dtype_bytes(t.dtype) : 0;
    if (!size) refuse("tensor " + name + " has the unknown dtype " + t.dtype);
    int64_t n = 0, start = -1, end = -1;
    bool whole = shape->kind == json::Value::array;
    for (const json::Value &d : shape->items) {
      int64_t x = 0;
      whole = whole && d.to(x);
      t.shape.push_back(x);
    }
    if (!whole || !count_elements(t.shape, n)) refuse("tensor " + name + " has an impossible shape");
    if (offsets->kind != json::Value::array || offsets->items.size() != 2 || !offsets->items[0].to(start) ||
        !offsets->items[1].to(end) || start < 0 || end < start || end > data_bytes)
      refuse(format("tensor %s: data_offsets [%lld,%lld] are not inside the %lld bytes of data", name.c_str(),
                    (long long)start, (long long)end, (long long)data_bytes));
    if (n * size != end - start)
      refuse(format("tensor %s: %s%s needs %lld bytes, data_offsets give %lld", name.c_str(), t.dtype.c_str(),
                    shape_text(t.shape).c_str(), (long long)(n * size), (long long)(end - start)));
    t.data = data + start;
    if ((uintptr_t)t.data % (uintptr_t)size)
      refuse(format("tensor %s is not aligned to its elements of %lld bytes; save it again with a current safetensors",
                    name.c_str(), (long long)size));
    return {end, t};
  }
};

// ---- finite or not

// The index of the first NaN or infinity among n floats, -1 if there is none
inline int64_t first_not_finite(const float *x, int64_t n) {
  const auto wrong = [](uint32_t bits) { return (bits & 0x7f800000u) == 0x7f800000u; };
  constexpr int64_t CHUNK = 4096;  // of which one is searched only if it holds something
  for (int64_t at = 0; at < n; at += CHUNK) {
    const int64_t end = std::min(at + CHUNK, n);
    bool found = false;
    for (int64_t i = at; i < end; i++) {
      uint32_t bits;
      memcpy(&bits, x + i, sizeof bits);
      found = found | wrong(bits);
    }
    for (int64_t i = at; found && i < end; i++) {
      uint32_t bits;
      memcpy(&bits, x + i, sizeof bits);
      if (wrong(bits)) return i;
    }
  }
  return -1;
}
inline std::string multi_index(const std::vector<int64_t> &shape, int64_t i) {
  std::string s;
  for (size_t d = shape.size(); d-- > 0; i /= shape[d]) s = std::to_string(i % shape[d]) + (s.empty() ? "" : ",") + s;
  return "[" + s + "]";
}
// "embed[41] = [1,5]"; of a vector "bias[3]"
inline std::string element_name(const std::string &name, const std::vector<int64_t> &shape, int64_t i) {
  return format("%s[%lld]", name.c_str(), (long long)i) + (shape.size() > 1 ? " = " + multi_index(shape, i) : "");
}
// Error: a float of the file that is NaN or infinite
inline void refuse_not_finite(const SafetensorsFile &file) {
  for (const TensorView &t : file.tensors) {
    int64_t n = 0;
    if (t.dtype != "F32" || !count_elements(t.shape, n)) continue;
    const int64_t i = first_not_finite((const float *)t.data, n);
    if (i >= 0)
      throw Error(format("%s: %s is %g; the state is useless: take an earlier checkpoint", file.path.c_str(),
                         element_name(t.name, t.shape, i).c_str(), (double)((const float *)t.data)[i]));
  }
}

// ---- compare

// The value and its bits: "0.25 (0x3e800000)"
inline std::string element_text(const TensorView &t, int64_t i) {
  const int64_t size = dtype_bytes(t.dtype);
  const unsigned char *at = (const unsigned char *)t.data + i * size;
  uint64_t bits = 0;
  for (int64_t b = 0; b < size; b++) bits |= (uint64_t)at[b] << (8 * b);
  const int digits = (int)(2 * size);
  const unsigned long long pattern = bits;
  float f;
  double d;
  const uint32_t low = (uint32_t)bits;
  memcpy(&f, &low, sizeof f);
  memcpy(&d, &bits, sizeof d);
  if (t.dtype == "F32") return format("%.9g (0x%0*llx)", (double)f, digits, pattern);
  if (t.dtype == "F64") return format("%.17g (0x%0*llx)", d, digits, pattern);
  if (t.dtype[0] == 'I')
    return format("%lld (0x%0*llx)", (long long)((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size)), digits,
                  pattern);
  return format("%llu (0x%0*llx)", pattern, digits, pattern);
}

// A metadata entry that differs: where both are JSON objects, each member that differs; otherwise both texts
inline void report_metadata(const std::string &key, const std::string *a, const std::string *b, FILE *out) {
  const auto shown = [](const std::string *s) {
    if (!s) return std::string("missing");
    return s->size() > 60 ? json::quote(s->substr(0, 60)) + "..." : json::quote(*s);
  };
  json::Value va, vb;
  try {
    if (a && b) {
      va = json::parse(*a, key);
      vb = json::parse(*b, key);
    }
  } catch (const Error &) {
    va = vb = json::Value();
  }
  int64_t named = 0;
  if (va.kind == json::Value::object && vb.kind == json::Value::object) {
    std::vector<std::string> keys = va.keys;
    for (const std::string &k : vb.keys)
      if (!va.find(k)) keys.push_back(k);
    for (const std::string &k : keys) {
      const json::Value *x = va.find(k), *y = vb.find(k);
      if (x && y && *x == *y) continue;
      const auto text = [](const json::Value *v) {
        if (!v) return std::string("missing");
        return v->items.empty() ? v->text : "(a list)";
      };
      fprintf(out, "metadata %s, %s: %s and %s\n", key.c_str(), k.c_str(), text(x).c_str(), text(y).c_str());
      named++;
    }
  }
  if (!named) fprintf(out, "metadata %s: %s and %s\n", key.c_str(), shown(a).c_str(), shown(b).c_str());
}

inline int64_t compare_metadata(const SafetensorsFile &a, const SafetensorsFile &b, FILE *out) {
  std::set<std::string> keys;
  for (const auto &entry : a.metadata) keys.insert(entry.first);
  for (const auto &entry : b.metadata) keys.insert(entry.first);
  int64_t differ = 0;
  for (const std::string &key : keys) {
    const auto x = a.metadata.find(key), y = b.metadata.find(key);
    const std::string *const s = x == a.metadata.end() ? nullptr : &x->second;
    const std::string *const t = y == b.metadata.end() ? nullptr : &y->second;
    if (s && t && *s == *t) continue;
    report_metadata(key, s, t, out);
    differ++;
  }
  return differ;
}

// Prints to `out` and returns 0 if metadata and tensors are equal bit for bit, else 1. The first differing element is
// the first in the order of A's data. A NaN equals only the same NaN.
inline int compare_checkpoints(const std::string &path_a, const std::string &path_b, FILE *out) {
  const SafetensorsFile a(path_a), b(path_b);
  const int64_t other = compare_metadata(a, b, out);
  int64_t elements = 0, tensors = 0, shapes = 0;
  for (const TensorView &t : a.tensors) {
    const TensorView *u = b.find(t.name);
    if (!u || u->shape != t.shape || u->dtype != t.dtype) {
      fprintf(out, "tensor %s: %s%s and %s%s\n", t.name.c_str(), t.dtype.c_str(), shape_text(t.shape).c_str(),
              u ? u->dtype.c_str() : "missing", u ? shape_text(u->shape).c_str() : "");
      shapes++;
      continue;
    }
    int64_t n = 0, differ = 0;
    count_elements(t.shape, n);
    const size_t size = (size_t)dtype_bytes(t.dtype);
    if (n == 0 || memcmp(t.data, u->data, (size_t)n * size) == 0) continue;
    for (int64_t i = 0; i < n; i++) {
      const size_t at = (size_t)i * size;
      if (memcmp((const char *)t.data + at, (const char *)u->data + at, size) == 0) continue;
      if (elements + differ++ == 0)
        fprintf(out, "first difference: %s[%lld] = %s: %s and %s\n", t.name.c_str(), (long long)i,
                multi_index(t.shape, i).c_str(), element_text(t, i).c_str(), element_text(*u, i).c_str());
    }
    elements += differ;
    tensors++;
  }
  for (const TensorView &u : b.tensors)
    if (!a.find(u.name)) {
      fprintf(out, "tensor %s: missing and %s%s\n", u.name.c_str(), u.dtype.c_str(), shape_text(u.shape).c_str());
      shapes++;
    }
  if (!other && !elements && !shapes) {
    fprintf(out, "identical: %zu tensors, %lld bytes\n", a.tensors.size(), (long long)a.data_bytes);
    return 0;
  }
  fprintf(out,
          "different: %lld elements in %lld of %zu tensors, %lld tensors missing or of another shape, "
          "%lld metadata entries\n",
          (long long)elements, (long long)tensors, a.tensors.size(), (long long)shapes, (long long)other);
  return 1;
}

}  // namespace runtime
