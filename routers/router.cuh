// router.cuh: where a sublayer reads its input and writes its update. A method never shows outside its Router.
// Everything here says device::, the namespace of this build.
#pragma once
#include "backend.cuh"
#include "parameters.cuh"

// What a pass works on: B sequences of T tokens, the gradients it adds to, and the earlier levels of the counter
template <class real> struct Pass {
  int64_t B, T;
  Flat<real> grads;
  exact::Carry carry;
  int64_t N() const { return B * T; }
};

// ---- for observers (routes.cuh, `show --reads`): what a read mixes, by name and by value

struct SourceInfo {
  std::string name, kind;  // kind: embedding, update, block, partial, partial detail, or the name of a detail
  double place;            // mean of the numbers of the updates in it; e counts as update -1
};
struct ReadInfo {
  std::string name;                 // of sublayer j: "j"; "final"
  std::vector<SourceInfo> sources;  // in the order of its weights
  Row query;                        // none for read 0
};
// A line a read: "4: e C0 phase0 split0"
inline std::string reads_text(const std::vector<ReadInfo> &reads) {
  std::string lines;
  for (const ReadInfo &read : reads) {
    lines += read.name + ":";
    for (const SourceInfo &source : read.sources) lines += " " + source.name;
    lines += "\n";
  }
  return lines;
}
// Of the N tokens of the last forward pass: p_i = exp(z_i - mx)*inv, over the n sources of a read. On the host
template <class real> struct ReadValues {
  std::vector<real> z, inverse_rms;  // (N,n)
  std::vector<real> mx, inv;         // (N); read 0 takes e alone: mx = z = 0, inv = 1
  std::vector<real> bias;            // of each detail the read sees
};
struct BlockCoefficients {
  int64_t block;
  std::string detail;
  std::vector<double> values;
};

// ---- the contract
// Call order in a pass:
//   forward    e = embedding() is filled;  per j ascending: h_j = read(j), update(j) is filled, write(j);  read_final()
//   backward   doutput() is filled, read_final_backward();  per j descending: du_j = write_backward(j), dinput(j) is
//              filled, read_backward(j);  then de = embedding_backward()
//   finish     once, after the last pass (and rank): what is left to do with the summed gradients
// All pointers are (N,C) and belong to the router, in the memory that carve() took; carve() is called twice, first to
// count (with an arena without memory), and again whenever N changes.
//   pass.N()                 at most the N of carve()
//   embedding(), update(j)   the caller writes them, after the call; embedding() also takes in the parameters as they
//                            are, so it begins every forward pass. update(j) may be one buffer for all j
//                            (keeps_updates() says) and is read before the next update() call at the latest
//   read(j), read_final()    valid, as input(j) and output(), until the next forward pass
//   doutput(), dinput(j)     the caller writes them; they may be what forward used for something else
//   write_backward(j)        du_j, complete: every read behind update j has been through read_backward. The caller
//                            reads it before dinput(j) is written
//   gradients of parameters  are added to pass.grads (with pass.carry) by the call that completes them over the pass
template <class real> struct Router {
  virtual ~Router() = default;
  virtual void carve(Arena<real> &arena, int64_t N, bool training) = 0;
  // forward
  virtual real *embedding() = 0;
  virtual const real *read(int64_t j, const Pass<real> &pass) = 0;
  virtual real *update(int64_t j) = 0;
  virtual void write(int64_t j, const Pass<real> &pass) = 0;
  virtual const real *read_final(const Pass<real> &pass) = 0;
  // what forward kept
  virtual const real *input(int64_t j) const = 0;
  virtual const real *output() const = 0;
  // backward
  virtual real *doutput() = 0;
  virtual void read_final_backward(const Pass<real> &pass) = 0;
  virtual const real *write_backward(int64_t j, const Pass<real> &pass) = 0;
  virtual real *dinput(int64_t j) = 0;
  virtual void read_backward(int64_t j, const Pass<real> &pass) = 0;
  virtual const real *embedding_backward(const Pass<real> &pass) = 0;
  virtual void finish(const Flat<real> &) {}
  // for observers, after a forward pass
  virtual bool keeps_updates() const { return true; }  // every update(j) still holds u_j
  virtual std::vector<ReadInfo> reads() const { return {}; }
  virtual ReadValues<real> read_values(int64_t, int64_t) const { return {}; }
  virtual const real *mix(int64_t) const { return nullptr; }  // where a stream stands beside the mix
  virtual Row scale(int64_t) const { return {}; }             // of update j, where it has one
  virtual std::vector<BlockCoefficients> coefficients() const { return {}; }
};

// What a family is made of; each router's file specialises it:
//   template <class real> using Router                      constructed from (config, table, weights)
//   static void add_rows(TensorTable &, const Config &)     the rows its methods add behind the backbone's
template <Family> struct FamilyOf;
