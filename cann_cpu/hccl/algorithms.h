// SPDX-License-Identifier: Apache-2.0
// The data of each collective, moved and reduced once the ranks have agreed on the call. Buffers as HCCL has them;
// sizes and offsets per rank are in bytes, counts in elements.
#pragma once

#include "mesh.h"

namespace cann_cpu {

struct Reduced {
  HcclDataType type;
  HcclReduceOp op;
};

struct Parts {
  std::vector<size_t> bytes;    // per rank
  std::vector<size_t> offsets;  // per rank
};

Parts parts_of(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& offsets, size_t element);
// Contiguous parts.
Parts packed(const std::vector<uint64_t>& counts, size_t element);

void all_reduce(Mesh& mesh, char* send, char* receive, size_t count, Reduced reduced, const Deadline& deadline);
void reduce(Mesh& mesh, char* send, char* receive, size_t count, Reduced reduced, uint32_t root,
            const Deadline& deadline);
void broadcast(Mesh& mesh, char* buffer, size_t bytes, uint32_t root, const Deadline& deadline);
void all_gather(Mesh& mesh, char* send, char* receive, const Parts& parts, const Deadline& deadline);
void reduce_scatter(Mesh& mesh, char* send, const Parts& parts, char* receive, Reduced reduced,
                    const Deadline& deadline);
void scatter(Mesh& mesh, char* send, char* receive, size_t bytes, uint32_t root, const Deadline& deadline);
void all_to_all(Mesh& mesh, char* send, const Parts& sends, char* receive, const Parts& receives,
                const Deadline& deadline);

}  // namespace cann_cpu
