# SPDX-License-Identifier: Apache-2.0
"""The public names of Ascend C, and which of them are in the headers here.

`python -m cann_cpu.ascendc.api_names` prints the table of docs/ascendc_names.md.
"""

import functools
import re
from pathlib import Path

from ..activation import HOME

PAGE = "docs/ascendc_names.md"
"""The page that has the table."""

NAMES = {
    "Numbers": "bfloat16_t fp4x2_e1m2_t fp4x2_e2m1_t fp8_e4m3fn_t fp8_e5m2_t fp8_e8m0_t half hifloat8_t int4b_t",
    "Arithmetic": """Abs AbsSub Add AddDeqRelu AddRelu AddReluCast Adds And Ands Axpy Cast CastDeq CastDequant Div Divs
        Exp ExpSub FusedMulAdd FusedMulAddRelu LeakyRelu Ln Max Maxs Min Mins Mul MulAddDst MulAddRelu MulCast Mull Muls
        MulsCast Neg Not Or Ors Prelu Reciprocal Relu Rsqrt ShiftLeft ShiftRight Sqrt Sub SubRelu SubReluCast Subs
        Truncate Xor SetDeqScale""",
    "Comparisons": "Compare CompareScalar Compares GetCmpMask Select SetCmpMask",
    "Reductions": """BlockReduceMax BlockReduceMin BlockReduceSum PairReduceSum RepeatReduceSum ReduceMax ReduceMin
        ReduceSum WholeReduceMax WholeReduceMin WholeReduceSum GetReduceRepeatMaxMinSpr GetReduceRepeatSumSpr
        ReduceDataBlock ReducePairElem ReduceRepeat""",
    "Elements moved": """BilinearInterpolation Brcb Copy CreateVecIndex DataCopy DataCopyPad DeInterleave
        Duplicate Gather GatherMask Gatherb Interleave ProposalConcat ProposalExtract RpSort16 Scatter SetPadValue
        SliceInfo Sort32 TransDataTo5HD Transpose VectorPadding""",
    "Sorted runs": "Concat Extract GetMrgSortResult GetSortLen GetSortOffset MrgSort MrgSort4 Sort TopK",
    "Masks": "ResetMask SetMaskCount SetMaskNorm SetVectorMask",
    "Order": """CrossCoreSetFlag CrossCoreWaitFlag DataSyncBarrier GroupBarrier IBSet IBWait
        InitDetermineComputeWorkspace Lock Mutex NotifyNextBlock PipeBarrier SetFlag SetNextTaskStart SetSyncBaseAddr
        SyncAll TQueSync Unlock WaitEvent WaitFlag WaitPreBlock WaitPreTaskEnd""",
    "Cores in groups": "CreateCubeResGroup CubeGroupMsgHead CubeMsgState CubeResGroupHandle KfcWorkspace",
    "Collectives": """AllGather AllReduce AlltoAll AlltoAllV AlltoAllvWrite BatchWrite Commit Finalize GetHcclContext
        GetQueueNum GetRankDim GetRankId GetWindowsInAddr GetWindowsOutAddr Hccl InitV2 InterHcclGroupSync Query
        QueueBarrier ReduceScatter SetCcTiling SetCcTilingV2 SetHcclContext Wait""",
    "Atomic operations": """AtomicAdd AtomicCas AtomicExch AtomicMax AtomicMin DisableDmaAtomic GetStoreAtomicConfig
        SetAtomicAdd SetAtomicMax SetAtomicMin SetAtomicNone SetAtomicType SetStoreAtomicConfig""",
    "Caches": """DataCacheCleanAndInvalid DataCachePreload GetICachePreloadStatus ICachePreLoad ReadGmByPassDCache
        WriteGmByPassDCache""",
    "Memory": """AllocEventID AllocTensor DeQue EnQue FetchEventID FreeAllEvent FreeTensor GetBaseAddr GetCurAddr
        GetCurBufSize GetSysWorkSpacePtr GetTPipePtr GetTensorCountInQue GetUserWorkspace GetWithOffset HasIdleBuffer
        HasTensorInQue InitBufPool InitBuffer InitGlobalMemory InitOutput LocalMemAllocator PopStackBuffer
        ReleaseEventID SetSysWorkspace TBuf TBufPool TBuffAddr TPipe TQue TQueBind VacantInQue""",
    "Tensors": """GetDataObj GetDataPtr GetPhyAddr GetPosition GetShapeInfo GetSize GetUserTag GetValue GlobalTensor
        Layout ListTensorDesc LocalTensor MakeLayout ReinterpretCast SetAddrWithOffset SetBufferLen SetGlobalBuffer
        SetL2CacheHint SetShapeAddr SetShapeInfo SetSize SetUserTag SetValue ShapeInfo TensorDesc TensorTrait""",
    "The core": """ClearSpr GetArchVersion GetBlockIdx GetBlockNum GetCtrlSpr GetDataBlockSizeInBytes
        GetProgramCounter GetRuntimeUBSize GetSpr GetSubBlockIdx GetSubBlockNum GetSystemCycle GetTaskRatio
        GetUBSizeInBytes GetVecLen ResetCtrlSpr SetCtrlSpr SetKernelMode""",
    "Scalars": """CountBitsCntSameAsSignBit CountLeadingZero GetBitCount GetSFFValue Nop ScalarCast
        ScalarCountLeadingZero ScalarGetCountOfValue ScalarGetSFFValue""",
    "Tiling": """COPY_TILING_WITH_ARRAY COPY_TILING_WITH_STRUCT GET_TILING_DATA GET_TILING_DATA_MEMBER
        GET_TILING_DATA_PTR_WITH_STRUCT GET_TILING_DATA_WITH_STRUCT REGISTER_NONE_TILING REGISTER_TILING_DEFAULT
        REGISTER_TILING_FOR_TILINGKEY TILING_KEY_IS TILING_KEY_LIST""",
    "To see what happens": """ASCENDC_ASSERT ASSERT DumpAccChkPoint DumpTensor KERNEL_LOG MarkStamp MetricsProfStart
        MetricsProfStop PRINTF Print PrintTimeStamp Trap ascendc_assert assert printf""",
    "On the CPU": "GmAlloc GmFree ICPU_RUN_KF ICPU_SET_TILING_KEY",
    "Elementary functions": """Acos Acosh Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clamp
        ClampMax ClampMin Cos Cosh CumSum Digamma Erf Erfc Floor Fma Fmod Frac Hypot IsFinite IsInf IsNan Lgamma Log
        Log10 Log2 LogicalAnd LogicalAnds LogicalNot LogicalOr LogicalOrs LogicalXor Power Rint Round Sign Sin SinCos
        Sinh Tan Tanh Trunc Where""",
    "Activations": """AdjustSoftMaxRes FasterGelu FasterGeluV2 GeGLU Gelu LogSoftMax ReGlu Sigmoid Silu SimpleSoftMax
        SoftMax SoftmaxFlash SoftmaxFlashV2 SoftmaxFlashV3 SoftmaxGrad SoftmaxGradFront SwiGLU Swish""",
    "Normalizations": """BatchNorm DeepNorm GroupNorm LayerNorm LayerNormGrad LayerNormGradBeta Normalize RmsNorm
        WelfordFinalize WelfordUpdate""",
    "Reductions of matrices": "Mean ReduceAll ReduceAny ReduceMean ReduceProd ReduceXorSum Sum",
    "Shapes": "Arange ArithProgression Broadcast Fill Pad TransData UnPad",
    "Quantization": "AntiQuantize AscendAntiQuant AscendDequant AscendQuant Dequantize Quantize",
    "Random numbers": "DropOut PhiloxRandom",
    "The matrix unit": """Conv2D DataCopyEnhancedParams Fixpipe FixpipeParams FixpipeParamsV220 Gemm InitConstValue
        LoadData LoadData3DParamsV1 LoadData3DParamsV2 LoadData3DParamsV2Pro LoadDataUnzip LoadDataWithSparse
        LoadDataWithTranspose LoadImageToLocal LoadUnzipIndex Matmul MatmulImpl Mmad MmadWithSparse REGIST_MATMUL_OBJ
        SetAippFunctions SetFixPipeAddr SetFixPipeClipRelu SetFixPipeConfig SetFixpipeNz2ndFlag SetFixpipePreQuantFlag
        SetFmatrix SetHF32Mode SetHF32TransMode SetLoadDataBoundary SetLoadDataPaddingValue SetLoadDataRepeat
        SetMMColumnMajor SetMMRowMajor""",
}


@functools.cache
def _defined() -> frozenset[str]:
    """The words in the headers that a kernel includes, without comments, and without types that are names alone."""
    headers = Path(HOME, "include")
    files = [headers / "kernel_operator.h", *sorted((headers / "ascendc").glob("*.h"))]
    text = "\n".join(file.read_text() for file in files)
    return frozenset(re.findall(r"\w+", re.sub(r"//.*|\bstruct \w+;", "", text)))


def is_here(name: str) -> bool:
    return name in _defined()


def missing_in(compiler_output: str) -> list[str]:
    """A line for each public name that a compiler does not know, with its place."""
    what = r"was not declared|is not a member|has not been declared|does not name a|is not a template"
    unknown = re.findall(
        rf"^(\S+?:\d+)(?::\d+)?: error: \W?(?:AscendC::)?(\w+)\W{{1,3}}(?:{what})", compiler_output, re.M
    )
    unknown += re.findall(
        r"^(\S+?:\d+)(?::\d+)?: +required from here\n.*error: .*incomplete type .AscendC::(\w+)", compiler_output, re.M
    )
    unknown += re.findall(
        r"^(\S+?:\d+)(?::\d+)?: error: .*AscendC::Hccl<.*has no member named \W(\w+)", compiler_output, re.M
    )
    names = {name for words in NAMES.values() for name in words.split()}
    said = {name: place for place, name in reversed(unknown) if name in names and not is_here(name)}
    return [
        f"{place}: {name} is not in Ascend C on the CPU; {PAGE} has what is" for name, place in sorted(said.items())
    ]


def table() -> str:
    rows = []
    for group, words in NAMES.items():
        names = sorted(words.split(), key=str.lower)
        here = ", ".join(f"`{name}`" for name in names if is_here(name))
        not_here = ", ".join(f"`{name}`" for name in names if not is_here(name))
        rows.append(f"| {group} | {here} | {not_here} |")
    return "\n".join(["| | there | not there |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    print(table(), end="")
