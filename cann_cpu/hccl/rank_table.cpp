// SPDX-License-Identifier: Apache-2.0
#include "rank_table.h"

#include <arpa/inet.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cann_cpu/json.h"
#include "failure.h"

namespace cann_cpu {
namespace {

[[noreturn]] void reject(const std::string& what) { throw CollectiveFailure(HCCL_E_PARA, what); }

const Json& member(const Json& object, const std::string& key) {
  const Json* const found = object.find(key);
  if (found == nullptr) reject(key + " is missing");
  return *found;
}

const std::string& text_of(const Json& object, const std::string& key) {
  const std::string* const text = member(object, key).scalar();
  if (text == nullptr) reject(key + " is not a string");
  return *text;
}

int32_t number_of(const Json& object, const std::string& key) {
  const std::string& text = text_of(object, key);
  const std::optional<int32_t> number = member(object, key).index();
  if (!number) reject(key + " is '" + text + "'; expected a number");
  return *number;
}

const Json::Array& list_of(const Json& object, const std::string& key) {
  const auto* const list = std::get_if<Json::Array>(&member(object, key).value);
  if (list == nullptr) reject(key + " is not a list");
  return *list;
}

const Json& object_in(const Json& json, const char* list) {
  if (!std::holds_alternative<Json::Object>(json.value))
    reject(std::string("an element of ") + list + " is not an object");
  return json;
}

bool is_address(const std::string& text) {
  in_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

// Where other machines reach this one: by its host_ip, or by the address that it has for a name.
std::string address_of(const Json& server) {
  const std::string key = server.find("host_ip") == nullptr ? "server_id" : "host_ip";
  const std::string& address = text_of(server, key);
  if (!is_address(address)) {
    reject("rank 0's server has " + key + " '" + address +
           "', which is not an IPv4 address; the other servers reach it by host_ip");
  }
  return address;
}

RankTable table_of(const Json& file) {
  if (const std::string& status = text_of(file, "status"); status != "completed") {
    reject("status is '" + status + "'; expected 'completed'");
  }
  if (const std::string& version = text_of(file, "version"); version != "1.0" && version != "1.2") {
    reject("version is '" + version + "'; expected '1.0' or '1.2'");
  }
  const Json::Array& servers = list_of(file, "server_list");
  if (static_cast<size_t>(number_of(file, "server_count")) != servers.size()) {
    reject("server_count is " + text_of(file, "server_count") + ", and server_list has " +
           std::to_string(servers.size()));
  }
  RankTable table;
  std::map<int32_t, int32_t> devices;  // of ranks
  std::set<std::string> names;
  for (const Json& each : servers) {
    const Json& server = object_in(each, "server_list");
    const std::string& name = text_of(server, "server_id");
    if (!names.insert(name).second) reject("server_id '" + name + "' is there twice");
    std::set<int32_t> taken;
    for (const Json& one : list_of(server, "device")) {
      const Json& device = object_in(one, "device");
      const int32_t id = number_of(device, "device_id");
      const int32_t rank = number_of(device, "rank_id");
      if (!taken.insert(id).second) reject("server '" + name + "' has device_id " + std::to_string(id) + " twice");
      if (!devices.emplace(rank, id).second) reject("rank_id " + std::to_string(rank) + " is there twice");
      if (rank == 0 && servers.size() > 1) table.root_address = address_of(server);
    }
  }
  if (devices.empty()) reject("it has no ranks");
  for (const auto& [rank, device] : devices) {
    if (static_cast<size_t>(rank) != table.devices.size())
      reject("rank_id " + std::to_string(table.devices.size()) + " is missing");
    table.devices.push_back(device);
  }
  return table;
}

}  // namespace

RankTable parse_rank_table(const std::string& text) {
  try {
    const Json json = parse_json(text);
    if (!std::holds_alternative<Json::Object>(json.value)) reject("it is not an object");
    return table_of(json);
  } catch (const JsonError& error) {
    reject(error.what());
  }
}

RankTable read_rank_table(const std::string& path) {
  const std::string where = "rank table '" + path + "': ";
  std::ifstream file(path);
  if (!file) throw CollectiveFailure(HCCL_E_OPEN_FILE_FAILURE, where + "cannot be read: " + std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return parse_rank_table(text);
  } catch (const CollectiveFailure& failure) {
    throw CollectiveFailure(failure.code, where + failure.what());
  }
}

}  // namespace cann_cpu
