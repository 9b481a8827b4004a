// test_routers.cu: the routers on the depth mixer. routers_truth.h: what must hold between the methods and against the
// direct softmax; routers_gradients.h: finite differences, goldens, source lists, rows of parameters; routers_edges.h:
// numerical edges, and bits over passes, ranks and decoding.
#include "test/routers_edges.h"
#include "test/routers_gradients.h"
#include "test/routers_truth.h"

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  set_float_mode();
  routers::goldens_and_parameters();
  routers::edges_and_bits();
  routers::truths();
  routers::differences();
  return check::report();
}
