// mix_plan.cuh: which sources every read of the depth mixer sees, in which group and lane it is, and which parameters it
// has: a pure function of the configuration, without memory. The mix router, `show --reads`, routes, bench and tests
// ask it.
//
// Sources, in order: e; then every update u_j (attnres, delta), or of every block b its sum C_b and its details (block,
// delta-block, wav, haares). Reads: one a sublayer, and a final one unless the stream is the output (delta). Groups have
// at most GROUP reads, by index: j mod GROUP over the stack, or inside the block. What was complete before a group's
// first read is scored for all of its reads at once (phase 1); the rest are a read's partials (phase 2): the updates
// since then, or the open block's sum and details.
#pragma once
#include "../attnres.cuh"
#include "../layers/random.cuh"
#include "parameters.cuh"
#include "router.cuh"

struct MixPlan {
  struct Source {
    SourceInfo info;
    int detail;  // which bias: 0 none, 1.. the details as listed
  };
  struct Block {
    int64_t first, length;  // sublayers
    size_t source;          // of its sum; its details follow
    std::string coef;       // the name of its learned coefficients
  };
  struct Read {
    std::string name;         // as ReadInfo's; its parameters are router.NAME.q, .g, .beta
    int64_t block, position;  // of sublayer j in the stack (full: block 0, position j)
    size_t group;
    int lane;      // its place k in the group
    int partials;  // sources of phase 2
    bool queries;  // has q and g: all but read 0, which takes e as it is
    bool beta;     // learns its biases
    std::string parameter(const char *which) const { return "router." + name + "." + which; }
  };
  struct Group {
    int64_t first_read;
    int reads;
    FirstLane first;
    std::vector<size_t> sources;  // of phase 1
    std::vector<bool> fresh;      // of each: this group is the first of the backward pass (last to first) to add to it
  };
  int64_t M;
  bool full, delta, has_final;
  std::vector<std::string> details;
  int bases;    // of a block: its sum and its details; full: 0
  int learned;  // which basis is, 0 none
  std::vector<Source> sources;
  std::vector<Block> blocks;
  std::vector<Read> reads;  // M, then the final one
  std::vector<Group> groups;
  std::vector<size_t> unread;  // sources that no group reads

  explicit MixPlan(const Config &c)
      : M(c.M()),
        full(c.full()),
        delta(c.delta()),
        has_final(!c.delta()),
        details(c.detail_list()),
        bases(full ? 0 : 1 + (int)details.size()),
        learned(0) {
    if (!details.empty() && !c.method().details) throw Error(c.router + " takes no details");
    for (size_t d = 0; d < details.size(); d++) {
      if (!find_named(DETAILS, details[d])) throw Error("detail '" + details[d] + "' is none of " + names_of(DETAILS));
      if (details[d] == "learned") learned = 1 + (int)d;
    }
    if (bases > MAX_PARTIALS) throw Error(format("%d details, at most %d fit", bases - 1, MAX_PARTIALS - 1));
    plan_sources(c);
    plan_reads(c);
    plan_groups(c);
  }
  bool is_final(int64_t j) const { return j == M; }
  int64_t detail_count() const { return (int64_t)details.size(); }

  // All sources of a read in the order of its weights: those of phase 1, then the partials
  std::vector<SourceInfo> sources_of(int64_t j) const {
    std::vector<SourceInfo> list;
    const Read &read = reads[j];
    for (const size_t i : groups[read.group].sources) list.push_back(sources[i].info);
    const int64_t first = j - (full ? read.lane : read.position);
    for (int d = 0; d < read.partials; d++) {
      if (full)
        list.push_back(sources[1 + first + d].info);
      else
        list.push_back(
            {d ? "P" + details[d - 1] : "PC", d ? "partial detail" : "partial", (double)(first + j - 1) / 2});
    }
    return list;
  }

 private:
  void plan_sources(const Config &c) {
    sources.push_back({{"e", "embedding", -1}, 0});
    for (int64_t j = 0; j < M && full; j++) sources.push_back({{format("u%d", (int)j), "update", (double)j}, 0});
    for (int64_t b = 0; b < c.blocks() && !full; b++) {
      const Block block{b * c.block, c.block_length(b), sources.size(), format("router.block.%d.coef", (int)b)};
      const double place = (double)block.first + (double)(block.length - 1) / 2;
      for (int d = 0; d < bases; d++) {
        const std::string kind = d ? details[d - 1] : "block";
        sources.push_back({{format("%s%d", d ? kind.c_str() : "C", (int)b), kind, place}, d});
      }
      blocks.push_back(block);
    }
  }
  void plan_reads(const Config &c) {
    const bool learns_beta = bases > 1 && !c.fixed_beta;
    for (int64_t j = 0; j < M; j++) {
      const int64_t block = full ? 0 : j / c.block, position = full ? j : j % c.block;
      const int lane = (int)(position % GROUP);
      const int open = position ? bases : 0;
      if (lane == 0) groups.push_back({j, 0, FirstLane::mix, {}, {}});
      groups.back().reads++;
      reads.push_back({format("%d", (int)j), block, position, groups.size() - 1, lane, full ? lane : open, j > 0,
                       learns_beta && j > 0});
    }
    groups[0].first = delta ? FirstLane::none : FirstLane::copy;
    if (!has_final) return;
    groups.push_back({M, 1, FirstLane::mix, {}, {}});
    reads.push_back({"final", (int64_t)blocks.size(), 0, groups.size() - 1, 0, 0, true, learns_beta && c.final_all});
  }
  // Sources complete before a group's first read; the final read sees sums, or all
  void plan_groups(const Config &c) {
    std::vector<bool> seen(sources.size());
    for (size_t g = groups.size(); g-- > 0;) {
      Group &group = groups[g];
      const int64_t j = group.first_read;
      const size_t complete = 1 + (full ? j : reads[j].block * bases);
      for (size_t i = 0; i < sources.size(); i++) {
        if (is_final(j) ? sources[i].detail && !c.final_all : i >= complete) continue;
        group.sources.push_back(i);
        group.fresh.push_back(!seen[i]);
        seen[i] = true;
      }
    }
    for (size_t i = 0; i < sources.size(); i++)
      if (!seen[i]) unread.push_back(i);
  }
};

// coef of basis d of a block, as it starts: signs or ones
inline std::vector<double> detail_coefficients(const MixPlan &plan, int64_t block, int d, uint64_t seed) {
  const MixPlan::Block &b = plan.blocks[block];
  const std::string kind = d == 0 ? "sum" : plan.details[d - 1];
  const bool halves = kind == "split" || kind == "random" || kind == "learned";
  std::vector<double> coef(b.length, 1);
  for (int64_t i = 0; i < b.length; i++) {
    if (kind == "phase") coef[i] = (b.first + i) % 2 == 0 ? 1 : -1;
    if (halves) coef[i] = i < b.length / 2 ? 1 : -1;
  }
  const uint64_t key = rng::key_of(seed, format("random.%d", (int)block).c_str());
  for (int64_t i = b.length - 1; i > 0 && kind == "random"; i--) std::swap(coef[i], coef[rng::below(key, i, i + 1)]);
  return coef;
}

// No row without a gradient: sublayer 0 reads e alone, a final read without details has no beta. Nothing here decays.
inline void add_mix_rows(TensorTable &t, const Config &c) {
  const MixPlan plan(c);
  for (const MixPlan::Read &read : plan.reads) {
    if (!read.queries) continue;
    add_router_vector(t, read.parameter("q"), c.C, Init::constant, 0);
    add_router_vector(t, read.parameter("g"), c.C, Init::constant, 1);
    if (read.beta) add_router_vector(t, read.parameter("beta"), plan.detail_count(), Init::constant, c.beta);
  }
  for (const MixPlan::Block &block : plan.blocks)
    if (plan.learned) add_router_vector(t, block.coef, block.length, Init::split, 1);
}
