// SPDX-License-Identifier: Apache-2.0
// The versions of CANN and of the driver: torch_npu and programs choose by these what they call.
#include "version.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "acl/acl.h"
#include "cann_cpu/call.h"

namespace cann_cpu {
namespace {

constexpr const char* kDriverVersion = "25.5.0";

const char* cann_version() {
  const char* chosen = std::getenv("CANN_CPU_VERSION");
  return chosen != nullptr && *chosen != '\0' ? chosen : CANN_CPU_DEFAULT_VERSION;
}

// The packages of CANN that the libraries and tools here stand for, beside the driver.
constexpr const char* kPackages[] = {"asc-devkit", "asc-tools",  "compiler", "ge-compiler", "ge-executor",
                                     "hccl",       "hcomm",      "metadef",  "opbase",      "opp",
                                     "ops-cv",     "ops-legacy", "ops-math", "ops-nn",      "ops-transformer",
                                     "runtime",    "toolkit"};

// The version of a package, which is named by its folder in share/info; - and _ are the same.
const char* version_of(std::string package) {
  std::ranges::replace(package, '_', '-');
  const auto is_named = [&](const char* name) { return strcasecmp(package.c_str(), name) == 0; };
  if (is_named("driver")) return kDriverVersion;
  if (std::ranges::any_of(kPackages, is_named)) return cann_version();
  fail(ACL_ERROR_INVALID_FILE, "there is no package %s", package.c_str());
}

}  // namespace

void require_readable_version() {
  const std::string text = cann_version();
  int major = 0, minor = 0, length = 0;
  (void)std::sscanf(text.c_str(), "%3d.%3d.%n", &major, &minor, &length);
  const bool is_rest_given = length > 0 && text.size() > static_cast<size_t>(length) && text.size() < 32;
  if (is_rest_given && std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '.'; })) return;
  fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_VERSION is '%s'; expected a version such as 9.1.0, 8.3.RC1 or 9.0.0.beta2",
       text.c_str());
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  return host_call(__func__, [&] {
    require_pointer(version, "version");
    if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER) {
      fail(ACL_ERROR_INVALID_PARAM, "package %d is unknown", name);
    }
    if (name != ACL_PKG_NAME_DRIVER) require_readable_version();
    *version = {};
    const char* text = name == ACL_PKG_NAME_DRIVER ? kDriverVersion : cann_version();
    std::strcpy(version->version, text);
    std::strcpy(version->patchVersion, "0");
    std::sscanf(text, "%63[^.].%63[^.].%63[^.].%63s", version->majorVersion, version->minorVersion,
                version->releaseVersion, version->patchVersion);
  });
}

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  return host_call(__func__, [&] {
    require_pointer(pkgName, "pkgName");
    require_pointer(versionStr, "versionStr");
    require_readable_version();
    std::strcpy(versionStr, version_of(pkgName));
  });
}
