// methods_text.cuh: what `train_gpt methods` prints: the table of routers/methods.cuh as text, names, JSON or Markdown.
#pragma once
#include "../routers/methods.cuh"
#include "json.cuh"

namespace runtime {

inline const char *sources_name(Sources s) {
  if (s == Sources::none) return "none";
  return s == Sources::updates ? "updates" : "blocks";
}
inline json::Literal json_list(const std::string &words, const char *between) {
  std::vector<json::Literal> items;
  if (!words.empty())
    for (const std::string &word : words_of(words, between)) items.push_back(word);
  return json::Literal::raw(json::array(items));
}
inline std::string methods_names() {
  std::string s;
  for (const Method &m : METHODS) s += m.name + std::string("\n");
  return s;
}
inline std::string methods_json() {
  std::string s = "[";
  for (const Method &m : METHODS) {
    s += (s.size() > 1 ? ",\n " : "") + json::object({{"name", m.name},
                                                      {"family", FAMILIES[(int)m.family]},
                                                      {"sources", sources_name(m.sources)},
                                                      {"delta", m.delta},
                                                      {"details", json_list(m.details ? m.details : "", ",")},
                                                      {"takes_details", m.details != nullptr},
                                                      {"options", json_list(m.options, " ")},
                                                      {"formula", m.formula},
                                                      {"parameters", m.parameters},
                                                      {"paper", m.paper}});
  }
  return s + "]\n";
}
inline std::string methods_markdown() {
  std::string s = "| `--router` | read and write | parameters added | paper |\n|---|---|---|---|\n";
  for (const Method &m : METHODS) s += format("| `%s` | %s | %s | %s |\n", m.name, m.formula, m.parameters, m.paper);
  return s;
}
inline std::string methods_text() {
  std::string s;
  for (const Method &m : METHODS) {
    s += format("%-12s %s\n%-12s parameters added: %s; %s\n", m.name, m.formula, "", m.parameters, m.paper);
    if (m.details && *m.details) s += format("%-12s details: %s\n", "", m.details);
    if (!*m.options) continue;
    s += format("%-12s options:", "");
    for (const std::string &option : words_of(m.options)) s += " --" + option;
    s += "\n";
  }
  return s + "h_j read of sublayer j of M, u_j its update, e embedding, out what the head sees, C channels\n";
}

}  // namespace runtime
