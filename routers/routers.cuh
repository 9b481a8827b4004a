// routers.cuh: the routers of all families, and the choice by the method's family (methods.cuh). A family whose file is
// not included here does not compile.
#pragma once
#include "mix_router.cuh"
#include "stream_router.cuh"
#include <memory>

// use(FamilyOf<f>()) for the family f
template <int f = 0, class F> auto of_family(Family family, F use) {
  if constexpr (f + 1 < (int)Family::count)
    if (f != (int)family) return of_family<f + 1>(family, use);
  return use(FamilyOf<(Family)f>());
}

inline void add_router_rows(TensorTable &t, const Config &c) {
  of_family(c.method().family, [&](auto family) { family.add_rows(t, c); });
}
inline TensorTable tensor_table(const Config &c) {
  TensorTable t;
  add_backbone_rows(t, c);
  add_router_rows(t, c);
  return t;
}
// weights: the parameters, in the layout of the table; config must outlive the router
template <class real>
std::unique_ptr<Router<real>> make_router(const Config &config, const TensorTable &table, const Flat<real> &weights) {
  return of_family(config.method().family, [&](auto family) -> std::unique_ptr<Router<real>> {
    return std::make_unique<typename decltype(family)::template Router<real>>(config, table, weights);
  });
}
