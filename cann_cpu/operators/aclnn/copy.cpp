// Copies across dtypes and strides.
#include "table.h"

using namespace cann_cpu;

ACLNN(InplaceCopy, [](Out self, In source) { self.copy_(source); });
ACLNN(Cast, [](In self, Dtype, Out out) { assign(out, self); });
