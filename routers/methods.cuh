// methods.cuh: the methods, a row each. Everything that lists, explains or checks methods derives from this table:
// --router and its help, the options that do not apply, Config, the choice of the router, bench, tests, scripts and the
// Python reference (`train_gpt methods`). Nothing else compares names of methods. Pure data: no model, no templates.
//
// A row's family decides which file computes it (routers.cuh); the fields behind it are for that family alone.
#pragma once
#include "../layers/device.cuh"
#include <algorithm>
#include <vector>

// stream: stream_router.cuh; mix: the depth mixer, mix_router.cuh
enum class Family { stream, mix, count };
inline constexpr const char *FAMILIES[] = {"stream", "mix"};
static_assert(sizeof FAMILIES / sizeof *FAMILIES == (size_t)Family::count, "every family has a name");
// stream: what an update is multiplied with when it is written
enum class Scale { one, scalar, channels };
// mix: what a read sees besides the embedding
enum class Sources { none, updates, blocks };

struct Method {
  const char *name;
  Family family;
  const char *formula;     // one line; ROUTING names: h_j read, u_j update, e embedding, M sublayers
  const char *parameters;  // added, of a model of M sublayers and C channels
  const char *paper;
  const char *options;  // of the command line: those that have a meaning for it and not for every method
  Scale scale = Scale::one;
  Sources sources = Sources::none;
  bool delta = false;             // mix: the mix is added to a stream with unit weights
  const char *details = nullptr;  // mix: of its blocks if --details says nothing; null: it takes none
};

#define BLOCK_OPTIONS "block details final-read rho beta fixed-beta wav-eps key-eps"
inline constexpr Method METHODS[] = {
    {"prenorm", Family::stream, "h_j = x_j; x_{j+1} = x_j + u_j; x_0 = e, out = x_M", "0", "Xiong et al. 2020", ""},
    {"rezero", Family::stream, "as prenorm, x_{j+1} = x_j + a_j u_j, a_j a scalar from 0", "M",
     "Bachlechner et al. 2020", "", Scale::scalar},
    {"layerscale", Family::stream, "as prenorm, x_{j+1} = x_j + l_j * u_j, l_j in R^C", "MC", "Touvron et al. 2021",
     "layerscale-init", Scale::channels},
    {"attnres", Family::mix, "h_j = softmax mix of e and all u_i, i < j; out = one more mix", "2MC", "arXiv 2603.15031",
     "key-eps", Scale::one, Sources::updates},
    {"block", Family::mix, "h_j = mix of e, the sums of closed blocks, the open block's sum; out likewise", "2MC",
     "arXiv 2603.15031", BLOCK_OPTIONS, Scale::one, Sources::blocks, false, ""},
    {"delta", Family::mix, "h_j = x_j + mix of e and all u_i; x_{j+1} = x_j + u_j; out = x_M", "2(M-1)C",
     "arXiv 2605.18855", "key-eps", Scale::one, Sources::updates, true},
    {"delta-block", Family::mix, "h_j = x_j + mix of e and block sums; x_{j+1} = x_j + u_j; out = x_M", "2(M-1)C",
     "arXiv 2605.18855", "block key-eps", Scale::one, Sources::blocks, true},
    {"wav", Family::mix, "as block, each block also gives phase (attention - MLP) and split (first half - second)",
     "2MC + 2(M-1)", "arXiv 2606.06564 v1", BLOCK_OPTIONS, Scale::one, Sources::blocks, false, "phase,split"},
    {"haares", Family::mix, "as block, each block also gives split (first half - second)", "2MC + M-1",
     "arXiv 2606.06564 v2", BLOCK_OPTIONS, Scale::one, Sources::blocks, false, "split"},
};
#undef BLOCK_OPTIONS

// The details a block can have (wav_router.cuh)
struct Detail {
  const char *name;
  bool halves;  // as many + as -: the block's length must be even
};
inline constexpr Detail DETAILS[] = {
    {"phase", true}, {"split", true}, {"random", true}, {"duplicate", false}, {"learned", true}};

// "a, b, c" of a table's names
template <class Rows> std::string names_of(const Rows &rows, const char *between = ", ") {
  std::string list;
  for (const auto &row : rows) list += (list.empty() ? "" : between) + std::string(row.name);
  return list;
}
template <class Rows> auto find_named(const Rows &rows, const std::string &name) {
  for (const auto &row : rows)
    if (name == row.name) return &row;
  return decltype(&rows[0])(nullptr);
}
inline const Method &method_named(const std::string &name) {
  const Method *m = find_named(METHODS, name);
  if (!m) throw Error("router '" + name + "' is none of " + names_of(METHODS));
  return *m;
}

// The words of a text, where any of the characters `between` ends one
inline std::vector<std::string> words_of(const std::string &text, const char *between = ", ") {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(between, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}
inline bool takes_option(const Method &m, const std::string &option) {
  for (const std::string &word : words_of(m.options))
    if (word == option) return true;
  return false;
}
// Whether an option belongs to some methods only
inline bool is_method_option(const std::string &option) {
  for (const Method &m : METHODS)
    if (takes_option(m, option)) return true;
  return false;
}
// The details of a method's blocks under --details TEXT: auto (the method's own), none, or a list
inline std::vector<std::string> details_of(const Method &m, const std::string &text) {
  const bool automatic = text == "auto", none = automatic && (!m.details || !*m.details);
  if (none || text == "none") return {};
  return words_of(automatic ? m.details : text, ",");
}
