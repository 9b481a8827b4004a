// json.cuh: as much JSON as a run needs. Literal is a value ready to be written, object() joins them, parse() reads.
//
//   numbers      shortest text that reads back to the same bits (std::to_chars; float and double each for themselves)
//   NaN, +-inf   have no JSON number: written as the strings "NaN", "Infinity", "-Infinity"
//   strings      UTF-8; control characters, '"' and '\' escaped; a byte that is not UTF-8 is written as U+FFFD
//   parse        strict RFC 8259: no trailing commas, no comments, no duplicate keys, UTF-8 only, one value per text,
//                at most 64 levels deep; Error "WHERE: not JSON at offset N: what"
#pragma once
#include <charconv>
#include <initializer_list>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../layers/device.cuh"

namespace runtime {
namespace json {

// Bytes of the UTF-8 character at s[i], 0 where there is none (overlong forms and surrogates are none)
inline int utf8_length(std::string_view s, size_t i) {
  const auto byte = [&](size_t k) { return i + k < s.size() ? (unsigned char)s[i + k] : 0u; };
  const auto tail = [&](size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const unsigned a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a < 0xE0) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a < 0xF0) return tail(1) && tail(2) && !(a == 0xE0 && b < 0xA0) && !(a == 0xED && b >= 0xA0) ? 3 : 0;
  if (a >= 0xF0 && a < 0xF5)
    return tail(1) && tail(2) && tail(3) && !(a == 0xF0 && b < 0x90) && !(a == 0xF4 && b >= 0x90) ? 4 : 0;
  return 0;
}
inline bool valid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const int n = utf8_length(s, i);
    if (!n) return false;
    i += (size_t)n;
  }
  return true;
}

inline std::string quote(std::string_view s) {
  std::string out = "\"";
  for (size_t i = 0; i < s.size();) {
    const unsigned char c = (unsigned char)s[i];
    const int n = utf8_length(s, i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += (char)c;
    } else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (c < 0x20 || c == 0x7f)
      out += format("\\u%04x", c);
    else if (n)
      out.append(s.substr(i, (size_t)n));
    else
      out += "\\ufffd";
    i += (size_t)(n ? n : 1);
  }
  return out + '"';
}

template <class real> std::string number(real x) {
  if (x != x) return "\"NaN\"";
  if (x - x != 0) return x > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof text, x).ptr);
}

// A value, already JSON text: Literal(0.5f), Literal("a"), Literal(true), Literal::raw("[1,2]")
struct Literal {
  std::string text;
  Literal(const char *s)
      : text(quote(s)) {}
  Literal(const std::string &s)
      : text(quote(s)) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> Literal(T x) {
    if constexpr (std::is_same_v<T, bool>)
      text = x ? "true" : "false";
    else if constexpr (std::is_floating_point_v<T>)
      text = number(x);
    else
      text = std::to_string(x);
  }
  static Literal raw(std::string json) {
    Literal value(false);
    value.text = std::move(json);
    return value;
  }
};
using Members = std::vector<std::pair<std::string, Literal>>;

// {"a":1,"b":"x"}; pretty: one member a line
inline std::string object(const Members &members, bool pretty = false) {
  std::string out = "{";
  for (size_t i = 0; i < members.size(); i++)
    out += (i ? "," : "") + std::string(pretty ? "\n  " : "") + quote(members[i].first) + (pretty ? ": " : ":") +
           members[i].second.text;
  return out + (pretty && !members.empty() ? "\n}" : "}");
}
inline std::string array(const std::vector<Literal> &items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); i++) out += (i ? "," : "") + items[i].text;
  return out + "]";
}

struct Value {
  enum Kind { null, boolean, number, string, array, object } kind = null;
  std::string text;               // a string's characters; the literal of a number, true, false, null
  std::vector<Value> items;       // of an array, or the values of an object
  std::vector<std::string> keys;  // of an object, in the order of the text
  const Value *find(std::string_view key) const {
    for (size_t i = 0; i < keys.size(); i++)
      if (keys[i] == key) return &items[i];
    return nullptr;
  }
  bool operator==(const Value &o) const {
    return kind == o.kind && text == o.text && keys == o.keys && items == o.items;
  }
  bool to(double &x) const { return kind == number && whole(std::from_chars(begin(), end(), x)); }
  // 1e3 and 1.0 are no integers
  bool to(int64_t &x) const { return kind == number && whole(std::from_chars(begin(), end(), x)); }

 private:
  const char *begin() const { return text.data(); }
  const char *end() const { return text.data() + text.size(); }
  bool whole(std::from_chars_result r) const { return r.ec == std::errc() && r.ptr == end(); }
};

struct Parser {
  std::string_view s;
  const std::string &where;
  size_t at = 0;

  [[noreturn]] void fail(const char *what) const {
    throw Error(format("%s: not JSON at offset %zu: %s", where.c_str(), at, what));
  }
  void space() {
    while (at < s.size() && (s[at] == ' ' || s[at] == '\n' || s[at] == '\t' || s[at] == '\r')) at++;
  }
  bool take(char c) {
    if (at >= s.size() || s[at] != c) return false;
    at++;
    return true;
  }
  unsigned hex4() {
    unsigned x = 0;
    for (int i = 0; i < 4; i++, at++) {
      const char c = at < s.size() ? s[at] : '\0';
      if (c >= '0' && c <= '9')
        x = x * 16 + (unsigned)(c - '0');
      else if (c >= 'a' && c <= 'f')
        x = x * 16 + (unsigned)(c - 'a') + 10;
      else if (c >= 'A' && c <= 'F')
        x = x * 16 + (unsigned)(c - 'A') + 10;
      else
        fail("\\u needs four hexadecimal digits");
    }
    return x;
  }
  void escape(std::string &out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = at < s.size() ? s[at] : '\0';
    const char *known = c ? strchr(from, c) : nullptr;
    if (known) {
      out += to[known - from];
      at++;
      return;
    }
    if (!take('u')) fail("unknown escape in a string");
    unsigned x = hex4();
    if (x >= 0xD800 && x < 0xDC00) {
      if (!take('\\') || !take('u')) fail("half of a surrogate pair");
      const unsigned low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      x = 0x10000 + ((x - 0xD800) << 10) + (low - 0xDC00);
    } else if (x >= 0xDC00 && x < 0xE000)
      fail("half of a surrogate pair");
    if (x < 0x80)
      out += (char)x;
    else if (x < 0x800) {
      out += (char)(0xC0 | x >> 6);
      out += (char)(0x80 | (x & 63));
    } else {
      if (x < 0x10000)
        out += (char)(0xE0 | x >> 12);
      else {
        out += (char)(0xF0 | x >> 18);
        out += (char)(0x80 | (x >> 12 & 63));
      }
      out += (char)(0x80 | (x >> 6 & 63));
      out += (char)(0x80 | (x & 63));
    }
  }
  std::string string() {
    if (!take('"')) fail("expected a string");
    std::string out;
    for (;;) {
      if (at >= s.size()) fail("the string does not end");
      if (take('"')) return out;
      if (take('\\')) {
        escape(out);
        continue;
      }
      if ((unsigned char)s[at] < 0x20) fail("control character in a string");
      const int n = utf8_length(s, at);
      if (!n) fail("not UTF-8");
      out.append(s.substr(at, (size_t)n));
      at += (size_t)n;
    }
  }
  void digits() {
    if (at >= s.size() || s[at] < '0' || s[at] > '9') fail("expected a digit");
    while (at < s.size() && s[at] >= '0' && s[at] <= '9') at++;
  }
  Value number() {
    const size_t start = at;
    take('-');
    if (!take('0')) digits();
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits();
    }
    Value v;
    v.kind = Value::number;
    v.text = std::string(s.substr(start, at - start));
    return v;
  }
  Value word(const char *text, Value::Kind kind) {
    if (s.substr(at, strlen(text)) != text) fail("expected a value");
    at += strlen(text);
    Value v;
    v.kind = kind;
    v.text = text;
    return v;
  }
  Value container(int depth, bool is_object) {
    Value v;
    std::set<std::string> seen;
    v.kind = is_object ? Value::object : Value::array;
    const char close = is_object ? '}' : ']';
    at++;
    space();
    if (take(close)) return v;
    for (;;) {
      if (is_object) {
        space();
        v.keys.push_back(string());
        if (!seen.insert(v.keys.back()).second) fail("the key before stands twice in its object");
        space();
        if (!take(':')) fail("expected ':'");
      }
      v.items.push_back(value(depth + 1));
      space();
      if (take(close)) return v;
      if (!take(',')) fail(is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
  }
  Value value(int depth) {
    if (depth > 64) fail("more than 64 levels deep");
    space();
    const char c = at < s.size() ? s[at] : '\0';
    if (c == '{' || c == '[') return container(depth, c == '{');
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    if (c == 't') return word("true", Value::boolean);
    if (c == 'f') return word("false", Value::boolean);
    if (c == 'n') return word("null", Value::null);
    if (c != '"') fail("expected a value");
    Value v;
    v.kind = Value::string;
    v.text = string();
    return v;
  }
};

// `where` begins the sentence of an Error: a path, or what the text is
inline Value parse(std::string_view text, const std::string &where) {
  Parser parser{text, where};
  const Value v = parser.value(0);
  parser.space();
  if (parser.at != text.size()) parser.fail("something follows the value");
  return v;
}

}  // namespace json
}  // namespace runtime
