// SPDX-License-Identifier: Apache-2.0
#include "rank_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "failure.h"

namespace cann_cpu {
namespace {

// Scalars as they are written, strings without their quotes: tables write numbers either way.
struct Json {
  using List = std::vector<Json>;
  using Object = std::map<std::string, Json>;
  std::variant<std::string, List, Object> value;
};

constexpr int kMaxDepth = 32;

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  Json read() {
    Json json = value(0);
    if (next() != '\0') reject("the end of the file");
    return json;
  }

 private:
  [[noreturn]] void reject(const std::string& expected) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    throw CollectiveFailure(HCCL_E_PARA, "line " + std::to_string(line) + " is no JSON: expected " + expected);
  }

  // The next character that is no space; zero at the end.
  char next() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool skip(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }

  std::string string() {
    if (!skip('"')) reject("a string");
    std::string read;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && (++at_ == text_.size() || std::strchr("\"\\/", text_[at_]) == nullptr)) {
        reject("no escape but of quotes, slashes and backslashes");
      }
      read += text_[at_++];
    }
    if (!skip('"')) reject("the end of a string");
    return read;
  }

  Json value(int depth) {
    if (depth == kMaxDepth) reject("fewer levels");
    if (skip('{')) {
      Json::Object object;
      while (!skip('}')) {
        if (!object.empty() && !skip(',')) reject(", or }");
        std::string key = string();
        if (!skip(':')) reject(":");
        if (!object.emplace(std::move(key), value(depth + 1)).second) reject("each key once");
      }
      return {std::move(object)};
    }
    if (skip('[')) {
      Json::List list;
      while (!skip(']')) {
        if (!list.empty() && !skip(',')) reject(", or ]");
        list.push_back(value(depth + 1));
      }
      return {std::move(list)};
    }
    if (next() == '"') return {string()};
    const size_t end = std::min(text_.find_first_of(" \t\r\n,:{}[]\"", at_), text_.size());
    if (end == at_) reject("a value");
    const std::string scalar = text_.substr(at_, end - at_);
    at_ = end;
    return {scalar};
  }

  const std::string& text_;
  size_t at_ = 0;
};

[[noreturn]] void reject(const std::string& what) { throw CollectiveFailure(HCCL_E_PARA, what); }

const Json* find(const Json::Object& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &found->second;
}

template <class T>
const T& get(const Json::Object& object, const std::string& key, const char* kind) {
  const Json* found = find(object, key);
  if (found == nullptr) reject(key + " is missing");
  if (!std::holds_alternative<T>(found->value)) reject(key + " is no " + kind);
  return std::get<T>(found->value);
}

const std::string& text_of(const Json::Object& object, const std::string& key) {
  return get<std::string>(object, key, "string");
}

uint32_t number_of(const Json::Object& object, const std::string& key) {
  const std::string& text = text_of(object, key);
  uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) reject(key + " is '" + text + "'; expected a number");
  return number;
}

const std::vector<Json>& list_of(const Json::Object& object, const std::string& key) {
  return get<Json::List>(object, key, "list");
}

const Json::Object& object_in(const Json& json, const char* list) {
  if (!std::holds_alternative<Json::Object>(json.value)) reject(std::string("an element of ") + list + " is no object");
  return std::get<Json::Object>(json.value);
}

bool is_address(const std::string& text) {
  in_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

// Where other machines reach this one: by its host_ip, or by the address that it has for a name.
std::string address_of(const Json::Object& server) {
  const std::string key = find(server, "host_ip") == nullptr ? "server_id" : "host_ip";
  const std::string& address = text_of(server, key);
  if (!is_address(address)) {
    reject("rank 0's server has " + key + " '" + address +
           "', which is no IPv4 address; the other servers reach it by host_ip");
  }
  return address;
}

RankTable table_of(const Json::Object& file) {
  if (const std::string& status = text_of(file, "status"); status != "completed") {
    reject("status is '" + status + "'; expected 'completed'");
  }
  if (const std::string& version = text_of(file, "version"); version != "1.0" && version != "1.2") {
    reject("version is '" + version + "'; expected '1.0' or '1.2'");
  }
  const std::vector<Json>& servers = list_of(file, "server_list");
  if (number_of(file, "server_count") != servers.size()) {
    reject("server_count is " + text_of(file, "server_count") + ", and server_list has " +
           std::to_string(servers.size()));
  }
  RankTable table;
  std::map<uint32_t, int32_t> devices;  // of ranks
  std::set<std::string> names;
  for (const Json& each : servers) {
    const Json::Object& server = object_in(each, "server_list");
    const std::string& name = text_of(server, "server_id");
    if (!names.insert(name).second) reject("server_id '" + name + "' is there twice");
    std::set<uint32_t> taken;
    for (const Json& one : list_of(server, "device")) {
      const Json::Object& device = object_in(one, "device");
      const uint32_t id = number_of(device, "device_id");
      const uint32_t rank = number_of(device, "rank_id");
      if (!taken.insert(id).second) reject("server '" + name + "' has device_id " + std::to_string(id) + " twice");
      if (!devices.emplace(rank, id).second) reject("rank_id " + std::to_string(rank) + " is there twice");
      if (rank == 0 && servers.size() > 1) table.root_address = address_of(server);
    }
  }
  if (devices.empty()) reject("it has no ranks");
  for (const auto& [rank, device] : devices) {
    if (rank != table.devices.size()) reject("rank_id " + std::to_string(table.devices.size()) + " is missing");
    table.devices.push_back(device);
  }
  return table;
}

}  // namespace

RankTable read_rank_table(const std::string& path) {
  const std::string where = "rank table '" + path + "': ";
  std::ifstream file(path);
  if (!file) throw CollectiveFailure(HCCL_E_OPEN_FILE_FAILURE, where + "cannot be read: " + std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const Json json = JsonReader(text).read();
    if (!std::holds_alternative<Json::Object>(json.value)) reject("it is no object");
    return table_of(std::get<Json::Object>(json.value));
  } catch (const CollectiveFailure& failure) {
    throw CollectiveFailure(failure.code, where + failure.what());
  }
}

}  // namespace cann_cpu
