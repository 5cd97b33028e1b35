// SPDX-License-Identifier: Apache-2.0
// A rank table: the JSON file that says where the ranks of a cluster are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cann_cpu {

struct RankTable {
  std::vector<int32_t> devices;  // of each rank, on its machine
  std::string root_address;      // of rank 0's machine; empty: all ranks are on one
};

// Throw CollectiveFailure saying what is wrong in it; of a file, with its name.
RankTable parse_rank_table(const std::string& text);
RankTable read_rank_table(const std::string& path);

}  // namespace cann_cpu
