// SPDX-License-Identifier: Apache-2.0
#include "algorithms.h"

#include <algorithm>
#include <cstring>

namespace cann_cpu {
namespace {

void copy(const char* from, char* to, size_t bytes) {
  if (from != to && bytes > 0) std::memmove(to, from, bytes);
}

template <class MakePiece>
std::vector<Piece> for_each_peer(const Mesh& mesh, MakePiece&& make) {
  std::vector<Piece> pieces;
  for (uint32_t peer = 0; peer < mesh.size(); ++peer) {
    if (peer != mesh.rank()) pieces.push_back(make(peer));
  }
  return pieces;
}

// Elements for each rank to reduce, as equal as they can be.
Parts split(size_t count, size_t element, uint32_t ranks) {
  Parts parts;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const size_t first = count * rank / ranks;
    parts.offsets.push_back(first * element);
    parts.bytes.push_back((count * (rank + 1) / ranks - first) * element);
  }
  return parts;
}

// Every rank gives a part to each, and folds what it gets into the result.
void fold_parts(Mesh& mesh, char* send, const Parts& parts, char* result, Reduced reduced, const Deadline& deadline) {
  const size_t element = size_of(reduced.type);
  const auto reduction = Reduction::make(reduced.type, reduced.op);
  const auto sends =
      for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, send + parts.offsets[peer], parts.bytes[peer]}; });
  mesh.fold(sends, {send + parts.offsets[mesh.rank()], result, parts.bytes[mesh.rank()] / element, element, *reduction},
            deadline);
}

}  // namespace

void all_reduce(Mesh& mesh, char* send, char* receive, size_t count, Reduced reduced, const Deadline& deadline) {
  const size_t element = size_of(reduced.type);
  const size_t bytes = count * element;
  if (bytes <= Mesh::kSentBytes) {  // sent before the result is written, which may be the same memory
    const Parts all{std::vector<size_t>(mesh.size(), bytes), std::vector<size_t>(mesh.size(), 0)};
    fold_parts(mesh, send, all, receive, reduced, deadline);
    return;
  }
  const Parts parts = split(count, element, mesh.size());
  char* own = receive + parts.offsets[mesh.rank()];
  fold_parts(mesh, send, parts, own, reduced, deadline);
  mesh.move(
      for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, own, parts.bytes[mesh.rank()]}; }),
      for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, receive + parts.offsets[peer], parts.bytes[peer]}; }),
      deadline);
}

Parts parts_of(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& offsets, size_t element) {
  Parts parts;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    parts.bytes.push_back(counts[rank] * element);
    parts.offsets.push_back(offsets[rank] * element);
  }
  return parts;
}

Parts packed(const std::vector<uint64_t>& counts, size_t element) {
  std::vector<uint64_t> offsets;
  uint64_t next = 0;
  for (const uint64_t count : counts) {
    offsets.push_back(next);
    next += count;
  }
  return parts_of(counts, offsets, element);
}

void reduce(Mesh& mesh, char* send, char* receive, size_t count, Reduced reduced, uint32_t root,
            const Deadline& deadline) {
  const size_t element = size_of(reduced.type);
  if (mesh.rank() != root) {
    mesh.move({{root, send, count * element}}, {}, deadline);
    return;
  }
  const auto reduction = Reduction::make(reduced.type, reduced.op);
  mesh.fold({}, {send, receive, count, element, *reduction}, deadline);
}

void broadcast(Mesh& mesh, char* buffer, size_t bytes, uint32_t root, const Deadline& deadline) {
  if (mesh.rank() != root) {
    mesh.move({}, {{root, buffer, bytes}}, deadline);
    return;
  }
  mesh.move(for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, buffer, bytes}; }), {}, deadline);
}

void all_gather(Mesh& mesh, char* send, char* receive, const Parts& parts, const Deadline& deadline) {
  const size_t bytes = parts.bytes[mesh.rank()];
  copy(send, receive + parts.offsets[mesh.rank()], bytes);
  mesh.move(
      for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, send, bytes}; }),
      for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, receive + parts.offsets[peer], parts.bytes[peer]}; }),
      deadline);
}

void reduce_scatter(Mesh& mesh, char* send, const Parts& parts, char* receive, Reduced reduced,
                    const Deadline& deadline) {
  size_t end = 0;
  for (uint32_t rank = 0; rank < mesh.size(); ++rank) end = std::max(end, parts.offsets[rank] + parts.bytes[rank]);
  const size_t bytes = parts.bytes[mesh.rank()];
  const bool is_own_part = receive == send + parts.offsets[mesh.rank()];
  const bool overlaps = receive < send + end && send < receive + bytes;
  if (is_own_part || !overlaps) {
    fold_parts(mesh, send, parts, receive, reduced, deadline);
    return;
  }
  std::vector<char> result(bytes);  // the others may still read what lies where the result goes
  fold_parts(mesh, send, parts, result.data(), reduced, deadline);
  mesh.finish(deadline);
  copy(result.data(), receive, bytes);
}

void scatter(Mesh& mesh, char* send, char* receive, size_t bytes, uint32_t root, const Deadline& deadline) {
  if (mesh.rank() != root) {
    mesh.move({}, {{root, receive, bytes}}, deadline);
    return;
  }
  mesh.move(for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, send + peer * bytes, bytes}; }), {}, deadline);
  copy(send + root * bytes, receive, bytes);
}

void all_to_all(Mesh& mesh, char* send, const Parts& sends, char* receive, const Parts& receives,
                const Deadline& deadline) {
  copy(send + sends.offsets[mesh.rank()], receive + receives.offsets[mesh.rank()], sends.bytes[mesh.rank()]);
  mesh.move(
      for_each_peer(mesh, [&](uint32_t peer) { return Piece{peer, send + sends.offsets[peer], sends.bytes[peer]}; }),
      for_each_peer(mesh,
                    [&](uint32_t peer) { return Piece{peer, receive + receives.offsets[peer], receives.bytes[peer]}; }),
      deadline);
}

}  // namespace cann_cpu
