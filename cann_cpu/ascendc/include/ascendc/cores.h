// SPDX-License-Identifier: Apache-2.0
// The cores of a kernel: which a block has, and which of them runs. A kernel specifies them by KERNEL_TASK_TYPE.
// Without it, a kernel is for vector cores alone, unless it uses the matrix unit: then a block has a cube core and two
// vector cores.
#pragma once

#include "ascendc/block.h"

#define KERNEL_TASK_TYPE_DEFAULT(type) AscendC::cpu::declare_type(AscendC::cpu::Where::current(), KernelMetaType::type)
#define KERNEL_TASK_TYPE(key, type) \
  (TILING_KEY_IS(key) ? AscendC::cpu::declare_type(AscendC::cpu::Where::current(), KernelMetaType::type) : void())

#define ASCEND_IS_AIC (AscendC::cpu::is_cube_core(AscendC::cpu::Where::current()))
#define ASCEND_IS_AIV (AscendC::cpu::is_vector_core(AscendC::cpu::Where::current()))
#define ASCEND_IS_NOT_AIC (!ASCEND_IS_AIC)
#define ASCEND_IS_NOT_AIV (!ASCEND_IS_AIV)

namespace AscendC {

namespace cpu {

struct CoresOf {
  uint8_t cube, vectors;
};
constexpr CoresOf cores_of(KernelMetaType type) {
  constexpr CoresOf kCores[] = {{0, 1}, {0, 1}, {1, 0}, {1, 0}, {1, 1}, {1, 2}, {0, 1}, {0, 1}, {0, 1}, {0, 1}};
  return kCores[type];
}

// The launch begins anew, with other cores, where it was begun with others than the kernel is for.
ASCENDC_CPU_EXPORT void declare_type(Where where, KernelMetaType type);
// Where a kernel that has not shown its type asks for its core: what it does on a cube core is tried out.
[[noreturn]] ASCENDC_CPU_EXPORT void find_type();
// Where it does what only mixed kernels do.
[[noreturn]] ASCENDC_CPU_EXPORT void is_mixed();

inline bool is_cube_core(Where where) {
  Block& block = cpu::block(where);
  if (!block.type.known && !block.type.tried) find_type();
  block.type.asked = block.type.tried;
  return block.core.cube;
}

// A core with both units is neither.
inline bool is_vector_core(Where where) { return !is_cube_core(where) && !block(where).type.fused(); }

// Whether what a core does by itself on another kind of chip is done by this one: it is a cube core, or has both units.
inline bool multiplies(const Block& block) { return block.core.cube || block.type.fused(); }

// Whether an instruction of the matrix unit does anything: on the vector cores of a mixed kernel it does not, as the
// compiler leaves it out there.
inline bool has_matrix_unit(const char* name, Where where) {
  const Block& block = cpu::block(where);
  if (!block.type.known) is_mixed();
  if (multiplies(block)) return true;
  if (cores_of(block.type.name).cube == 0) {
    fail(where, "%s: the kernel is for vector cores alone, by KERNEL_TASK_TYPE; the matrix unit is of a cube core",
         name);
  }
  return false;
}

}  // namespace cpu

inline int64_t GetSubBlockIdx(cpu::Where where = cpu::Where::current()) { return cpu::block(where).core.sub; }
// Cores of its kind in a block.
inline int64_t GetSubBlockNum(cpu::Where where = cpu::Where::current()) { return cpu::block(where).core.sub_blocks; }
inline int64_t GetTaskRatio(cpu::Where where = cpu::Where::current()) { return GetSubBlockNum(where); }
inline int64_t GetTaskRation(cpu::Where where = cpu::Where::current()) { return GetSubBlockNum(where); }

}  // namespace AscendC

// Where code asks for the core by its name.
namespace AscendC {
namespace cpu {
enum CoreKind : uint8_t { MIX = 0, AIC = 1, AIV = 2 };
}
using cpu::AIC;
using cpu::AIV;
using cpu::MIX;
}  // namespace AscendC
inline constexpr struct {
  operator AscendC::cpu::CoreKind() const {
    return ASCEND_IS_AIC ? AscendC::AIC : ASCEND_IS_AIV ? AscendC::AIV : AscendC::MIX;
  }
} g_coreType;

// Run mode cpu says before ICPU_RUN_KF which cores a kernel is for; what the kernel itself shows decides.
enum class KernelMode : uint8_t { AIC_MODE, AIV_MODE, MIX_MODE };
namespace AscendC {
using ::KernelMode;
inline void SetKernelMode(KernelMode) {}
}  // namespace AscendC
