# SPDX-License-Identifier: Apache-2.0
# The further names by which projects include a header of ours, as CANN has them: header_names(HEADER NAME...).
header_names(kernel_operator.h
  adv_api/reduce/reduce.h adv_api/reduce/sum.h basic_api/kernel_basic_intf.h
  basic_api/kernel_operator_block_sync_intf.h impl/dav_c220/kernel_operator_reg_others_impl.h
  kernel_basic_intf.h kernel_cube_intf.h kernel_data_copy_transpose.h kernel_event.h kernel_macros.h
  kernel_operator_intf.h kernel_operator_list_tensor_intf.h kernel_tensor.h kernel_tensor_impl.h kernel_type.h
  kernel_utils.h kernel_vec_intf.h stub_def.h stub_fun.h utils/debug/asc_assert.h utils/debug/asc_dump.h
  utils/debug/asc_printf.h)
header_names(tiling/platform/platform_ascendc.h
  experiment/platform/platform/platform_infos_def.h platform/platform_ascendc.h platform/platform_info.h
  platform/platform_infos_def.h platform/soc_spec.h)
header_names(ascendc/hccl.h
  adv_api/hccl/hccl.h adv_api/hccl/hccl_common.h lib/hccl/hccl.h lib/hccl/hccl_common.h)
header_names(tiling/hccl/hccl_tiling.h
  adv_api/hccl/hccl_tiling.h adv_api/hccl/hccl_tilingdata.h)
header_names(tiling/matmul_tiling.h
  lib/matmul/bmm_tiling.h lib/matmul/matmul_tiling.h)
header_names(lib/matmul_intf.h
  lib/matmul/matmul_intf.h lib/matrix/matmul/tiling.h)
header_names(ascendc/host_api/tiling/template_argument.h
  tiling/template_argument.h)
header_names(base/log_types.h
  toolchain/log_types.h)
header_names(base/dlog_pub.h
  toolchain/dlog_pub.h toolchain/slog.h)
header_names(op_common/log/log.h
  op_common/log/error_code.h)
