// FormCommunicator: chooses the backend and loads its module.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "worker/collective/backend_choice.h"
#include "worker/collective/communicator.h"
#include "worker/collective/module.h"
#include "worker/collective/self_communicator.h"

namespace lockstep {
namespace {

// Backends that this version knows of, installed or not.
constexpr std::array<std::string_view, 2> kKnownModules = {"gloo", "nccl"};

bool IsModuleName(std::string_view name) {
  return !name.empty() && name.size() <= 32 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

StatusOr<std::string> ModuleDir(const CommunicatorOptions& options) {
  if (!options.module_dir.empty()) return options.module_dir;
  const char* from_environment = std::getenv("LOCKSTEP_MODULE_DIR");
  if (from_environment != nullptr && *from_environment != '\0') {
    return std::string(from_environment);
  }
  char program[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", program, sizeof(program));
  if (size <= 0) return ErrnoStatus(errno, "reading /proc/self/exe");
  const std::string path(program, size);
  return path.substr(0, path.rfind('/')) + "/../lib/lockstep";
}

StatusOr<const lockstep_collective_module*> LoadModule(
    const std::string& name, const CommunicatorOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string dir, ModuleDir(options));
  const std::string path = dir + "/collective-" + name + ".so";
  if (access(path.c_str(), F_OK) != 0) {
    const bool known = std::find(kKnownModules.begin(), kKnownModules.end(),
                                 name) != kKnownModules.end();
    if (known) {
      return NotFound("backend {} is not installed: there is no {}", name,
                      path);
    }
    return InvalidArgument(
        "unknown backend {}; there are auto, self, gloo, nccl and modules in "
        "{}",
        name, dir);
  }
  // Never closed: communicators, their threads and static data live in it.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return FailedPrecondition("backend {} cannot be loaded: {}", name,
                              dlerror());
  }
  auto* entry = reinterpret_cast<lockstep_collective_module_function*>(
      dlsym(handle, kLockstepCollectiveEntry));
  if (entry == nullptr) {
    return FailedPrecondition("{} is no backend module: it has no {}", path,
                              kLockstepCollectiveEntry);
  }
  const lockstep_collective_module* module = entry();
  if (module == nullptr || module->abi != kLockstepCollectiveAbi ||
      module->struct_size < sizeof(lockstep_collective_module)) {
    return FailedPrecondition(
        "{} has interface version {}, this program needs {}: install both "
        "from one build",
        path, module == nullptr ? 0 : module->abi, kLockstepCollectiveAbi);
  }
  if (std::strcmp(module->toolchain, kLockstepCollectiveToolchain) != 0) {
    return FailedPrecondition(
        "{} was built by {}, this program by {}: install both from one build",
        path, module->toolchain, kLockstepCollectiveToolchain);
  }
  return module;
}

Status CheckOptions(const CommunicatorOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("{}: rank {} is none of {} ranks", options.label,
                           options.rank, options.size);
  }
  if (options.operation_timeout <= Duration::zero()) {
    return InvalidArgument("{}: operation_timeout must be positive",
                           options.label);
  }
  if (options.backend != "auto" && !IsModuleName(options.backend)) {
    return InvalidArgument("{}: \"{}\" is no backend name", options.label,
                           options.backend);
  }
  return OkStatus();
}

// Whether this rank could use nccl; no error is one of forming.
RankOffer OfferNccl(const CommunicatorOptions& options) {
  RankOffer offer;
  if (options.device < 0) {
    offer.why_not = "has no GPU";
    return offer;
  }
  const auto module = LoadModule("nccl", options);
  if (!module.ok()) {
    offer.why_not = "has no NCCL: " + Message(module.status());
  } else if ((*module)->offer == nullptr) {
    offer.why_not = "has a module for nccl that offers nothing";
  } else {
    (*module)->offer(&options, &offer);
  }
  return offer;
}

// "gloo" or "nccl", for auto and nccl.
StatusOr<std::string> Agree(const CommunicatorOptions& options) {
  const RankOffer mine = OfferNccl(options);
  LOCKSTEP_ASSIGN_OR_RETURN(const BackendChoice choice,
                            AgreeOnBackend(options, mine));
  if (options.backend == "auto") {
    if (options.choice != nullptr) *options.choice = choice.why;
    return std::string(choice.nccl ? "nccl" : "gloo");
  }
  if (choice.nccl) return std::string("nccl");
  const size_t colon = choice.why.find(": ");
  return FailedPrecondition("{}: backend nccl cannot be used: {}",
                            options.label, choice.why.substr(colon + 2));
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> FormCommunicator(
    const CommunicatorOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  std::string backend = options.backend;
  if (backend == "auto" && options.size == 1) backend = "self";
  if (backend == "self") {
    if (options.size != 1) {
      return InvalidArgument("{}: backend self is for one rank, not for {}",
                             options.label, options.size);
    }
    return MakeSelfCommunicator(options.label);
  }
  if (options.size > 1 && options.rendezvous == nullptr) {
    return InvalidArgument("{}: {} ranks need a rendezvous store",
                           options.label, options.size);
  }
  if (backend == "auto" || (backend == "nccl" && options.size > 1)) {
    LOCKSTEP_ASSIGN_OR_RETURN(backend, Agree(options));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep_collective_module* module,
                            LoadModule(backend, options));
  Communicator* communicator = nullptr;
  Status error;
  if (!module->form(&options, &communicator, &error)) return error;
  return std::unique_ptr<Communicator>(communicator);
}

}  // namespace lockstep
