#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes what reads files that others have written, and what ranks of collectives get from each other, under AddressSanitizer and UndefinedBehaviorSanitizer, beginning with
# valid files (seeds.py):
#
#   bash test/reliability/fuzz/run.sh [READER] [SECONDS]            guided by coverage (clang's libFuzzer); all readers, and
#                                                                   20 minutes each, by default
#   bash test/reliability/fuzz/run.sh --mutations READER [COUNT]    blind mutations, with any compiler
#
# What fails is left in build/fuzz/READER, and run again by `build/fuzz/READER/coverage FILE`. Needs what
# build_and_install.sh has built, and clang 15 or later (CLANG=clang++-16).
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=test/reliability/fuzz
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
engine=cann_cpu/build/cann_cpu/graph_engine/CMakeFiles/ge_runner.dir

# Each reader's sources below cann_cpu/, which are compiled with the sanitizers; the rest is the installed libraries.
declare -A sources=(
  [binary]="runtime/device_binary"
  [configuration]="runtime/configuration common/json hccl/rank_table"
  [model]="graph_engine/model/model graph_engine/model/dtypes graph_engine/model/attributes graph_engine/execution/compile
    graph_engine/execution/fusion aclop/operator_models common/json common/operator_packages"
  [package]="common/operator_packages nnopbase/kernel_file"
  [wire]="hccl/algorithms hccl/call hccl/handshake hccl/mesh hccl/reduction hccl/rendezvous hccl/tracing"
  [rule]="graph_engine/packages/inference_rule common/json"
)

# compile SOURCE OBJECT COMMAND...: unless the object is newer than all that it was compiled from.
compile() {
  local source=$1 object=$2 command=("${@:3}")
  [ -e "$object" ] && [ -z "$(find "$here/run.sh" $(sed 's/^[^:]*://; s/\\$//' "$object.d") -newer "$object" 2>&1)" ] && return
  "${command[@]}" -MD -MF "$object.d" -c "$source" -o "$object"
}

# build READER MAIN COMPILER...: the reader's sources, with one of the two main programs; of a model also the nodes that its
# graph may have, as they are built. Readers share objects.
build() {
  local reader=$1 main=$2 compiler=("${@:3}") objects=() flags=(-std=c++20 -g1 -fno-omit-frame-pointer
    -fsanitize=address,undefined -fno-sanitize-recover=all -I"$here" -Icann_cpu -Icann_cpu/common
    -isystem "$site/torch/include"
    -isystem "$site/nlohmann_json/include")
  local include
  for include in cann_cpu/*/include; do flags+=("-I$include"); done
  local libraries=(-L"$site/cann_cpu/lib64" -lascendcl -lascendc_cpu -Wl,-rpath,"$site/cann_cpu/lib64:$site/torch/lib" -lpthread)
  local shared=build/fuzz/objects.$main
  mkdir -p "$shared"
  for source in "$here/$reader" "$here/$main" ${sources[$reader]}; do
    [ -e "$source.cpp" ] || source=cann_cpu/$source
    objects+=("$shared/${source//\//_}.o")
    compile "$source.cpp" "${objects[-1]}" "${compiler[@]}" "${flags[@]}"
  done
  [ "$reader" != wire ] || libraries+=(-L"$site/torch/lib" -ltorch_cpu -lc10)
  if [ "$reader" = model ]; then
    local seen=" ${sources[model]//graph_engine\//} "
    while read -r object; do
      local name=${object#"$engine/"}
      [[ $seen == *[[:space:]]"${name%.cpp.o}"[[:space:]]* ]] || objects+=("$object")
    done < <(find "$engine" -name '*.cpp.o')
    libraries+=(-L"$site/torch/lib" -lnnopbase -lregister -lhccl -ltorch_cpu -lc10 -ldl)
  fi
  "${compiler[@]}" "${flags[@]}" "${objects[@]}" "${libraries[@]}" -o "$out/$main"
}

prepare() {
  out=$PWD/build/fuzz/$1
  rm -rf "$out/seeds" && mkdir -p "$out/seeds"
  python "$here/seeds.py" "$1" "$out/seeds"
  export UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=allocator_may_return_null=1
  [ "$1" != model ] || ASAN_OPTIONS+=:detect_leaks=0  # torch's own drown all others
}

coverage() {
  local reader=$1 seconds=$2 clang
  clang=${CLANG:-$(compgen -c clang++ | sort -V | tail -1)}
  [ -n "$clang" ] || { echo "there is no clang++: apt-get install clang" >&2; exit 2; }
  prepare "$reader"
  build "$reader" coverage "$clang" -O1 -fsanitize=fuzzer
  mkdir -p "$out/corpus"
  echo "$reader, $seconds s"
  (cd "$out" && ./coverage -max_total_time="$seconds" -timeout=300 -report_slow_units=5 -rss_limit_mb=4096 -print_final_stats=1 corpus seeds)
}

case "${1:-}" in
  --mutations)
    prepare "$2"
    build "$2" mutations g++ -O0  # the compiler would take longer for -O1 than the mutations do
    "$out/mutations" "${3:-20000}" "$out"/seeds/*
    ;;
  "") for reader in "${!sources[@]}"; do coverage "$reader" 1200; done ;;
  *)
    [ -n "${sources[$1]:-}" ] || { echo "no reader $1; there is ${!sources[*]}" >&2; exit 2; }
    coverage "$1" "${2:-1200}"
    ;;
esac
