// The checker.
#include "ascendc/block.h"
#include "ascendc/data_copy.h"

namespace AscendC::cpu {

void check_vector(const char*, Where, const Lanes&, std::initializer_list<Operand>) {}
void check_local(const char*, Where, pipe_t, Use, const LocalMemory&, int64_t, int64_t) {}
void check_global(const char*, Where, pipe_t, Use, const GlobalMemory&, int64_t, int64_t) {}
void check_copy_in(const char*, Where, const LocalMemory&, const Runs&, const GlobalMemory&, const Runs&) {}
void check_copy_out(const char*, Where, const GlobalMemory&, const Runs&, const LocalMemory&, const Runs&) {}
void check_copy_within(const char*, Where, const LocalMemory&, const Runs&, const LocalMemory&, const Runs&) {}

}  // namespace AscendC::cpu
