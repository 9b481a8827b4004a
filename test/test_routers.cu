#include "test/routers_truth.h"
int main() { set_float_mode(); routers::truths(); return check::report(); }
