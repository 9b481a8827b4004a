// tiles.cuh: how products, weight gradients and attention are cut to fit the processor: register tiles from a table, by
// the width of its vectors and how many it can hold, at compile time; blocks from the sizes of its caches, at the start.
// Bits depend on neither (test_bits: every row of the table, several caches).
#pragma once
#include "simd.cuh"
#include <string>
#include <unistd.h>

namespace cpu {

// A register tile: rows x vectors chains, one vector of the right side each, one register for the left side's broadcast.
// A step of it does rows*vectors FMAs and rows + vectors loads. Where two FMAs and two loads start in a cycle, and an
// FMA takes four cycles, 8 chains keep the units busy, and everything below 1 load an FMA is free; fewer loads an FMA
// leave the load ports to what comes from L2, and a taller tile reads its panel of the right side less often.
struct RegisterTile {
  int lanes, registers;  // of the machine
  int rows, vectors;     // of products and weight gradients
  int attention_rows;    // of tiles of 2 vectors; the diagonal wastes half a tile's rows, so not too many
};
constexpr RegisterTile TILES[] = {
    {16, 32, 14, 2,
     12},               // 28 chains, 0.57 loads; the panel of 32 columns is read once for 14 rows and 256 steps fit L1
    {16, 32, 8, 3, 8},  // 24 chains, 0.46 loads; a panel of 48 columns needs shorter chains to fit L1
    {8, 16, 6, 2, 6},   // 12 chains, 0.67 loads; the most rows that 16 registers leave at 2 vectors
    {8, 16, 4, 3, 4},   // 12 chains, 0.58 loads, but a panel read once for 4 rows
    {4, 32, 6, 4, 6},   // 24 chains, 0.42 loads: NEON
    {4, 32, 12, 2, 6},  // 24 chains, 0.58 loads; packs panels of 8 columns
    {4, 16, 6, 2, 6},   // 12 chains, 0.67 loads: SSE
};
#if defined __AVX512F__ || defined __aarch64__ || defined SIMD_WIDTH
constexpr int REGISTERS = 32;
#else
constexpr int REGISTERS = 16;
#endif
// -DTILE=1 takes the second that fits the machine, 2 the third
#if !defined TILE
#define TILE 0
#endif
constexpr RegisterTile register_tile() {
  int skip = TILE;
  for (const RegisterTile &t : TILES)
    if (t.lanes == VL && t.registers == REGISTERS && skip-- == 0) return t;
  return {};
}
constexpr int MR = register_tile().rows, NV = register_tile().vectors, AR = register_tile().attention_rows;
static_assert(MR > 0, "TILES has no such tile for this width");
constexpr int NR = NV * VL;

// Data caches of one core, in bytes
struct Caches {
  int64_t l1, l2;
};
inline Caches read_caches() {
  Caches x{32 << 10, 512 << 10};  // where the system does not tell
#if defined _SC_LEVEL1_DCACHE_SIZE
  const int64_t l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l1 >= 8 << 10) x.l1 = l1;
  if (l2 >= 128 << 10) x.l2 = l2;
#endif
  return x;
}
struct Blocks {
  int64_t steps;   // of a chain in one go: a panel of NR columns takes three quarters of L1
  int64_t rows;    // of the left side, in a fourth of L2, while all panels pass by
  int64_t packed;  // floats of the right side that are packed together
  int64_t panels;  // floats of a sequence's inputs that a weight gradient packs: less than half of L2
};
inline Blocks blocks_for(const Caches &x) {
  Blocks b;
  b.steps = std::max<int64_t>(64, x.l1 * 3 / 4 / (4 * NR) / 8 * 8);
  b.rows = std::max<int64_t>(MR, x.l2 * 9 / 32 / (4 * b.steps) / MR * MR);
  b.packed = 1 << 20;
  b.panels = x.l2 * 7 / 16 / 4;
  return b;
}
// Those of this process; a test may set others
inline Blocks &blocks() {
  static Blocks b = blocks_for(read_caches());
  return b;
}
inline std::string tile_text() {
  const Caches x = read_caches();
  return format("%s, tiles of %d x %d, L1 %dK, L2 %dK", SIMD, MR, NR, (int)(x.l1 >> 10), (int)(x.l2 >> 10));
}

}  // namespace cpu
