// FormCommunicator: agrees on the backend and forms it, built in or a module.
#include "worker/collective/factory/form_communicator.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "worker/collective/communicator.h"
#include "worker/collective/factory/backend_agreement.h"
#include "worker/collective/factory/backend_choice.h"
#include "worker/collective/factory/host_identity.h"
#include "worker/collective/hierarchical/hierarchical_communicator.h"
#include "worker/collective/module.h"
#include "worker/collective/removed_backend.h"
#include "worker/collective/self_communicator.h"
#include "worker/collective/shm/shm_communicator.h"
#include "worker/collective/sockets.h"
#include "worker/collective/tcp/tcp_communicator.h"

namespace lockstep::worker::collective {
namespace {

constexpr std::array<std::string_view, 3> kBuiltIn = {"shm", "tcp",
                                                      "hierarchical"};
// Modules that this version knows of, installed or not.
constexpr std::array<std::string_view, 1> kKnownModules = {"nccl"};

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
        "unknown backend {}; there are auto, self, shm, tcp, hierarchical, "
        "nccl and modules in {}",
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
    return FailedPrecondition("{} is not a backend module: it has no {}", path,
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
    return InvalidArgument("{}: rank {} is out of range for {} ranks",
                           options.label, options.rank, options.size);
  }
  if (options.operation_timeout <= Duration::zero()) {
    return InvalidArgument("{}: operation_timeout must be positive",
                           options.label);
  }
  if (options.backend != "auto" && !IsModuleName(options.backend)) {
    return InvalidArgument("{}: \"{}\" is not a backend name", options.label,
                           options.backend);
  }
  return Annotate(CheckNotRemoved(options.backend), options.label);
}

bool IsBuiltIn(std::string_view backend) {
  return std::find(kBuiltIn.begin(), kBuiltIn.end(), backend) != kBuiltIn.end();
}

// What this rank can find out alone: nobody is waited for in vain.
Status CheckGroup(const CommunicatorOptions& options) {
  if (options.rendezvous == nullptr) {
    return InvalidArgument("{}: {} ranks need a rendezvous store",
                           options.label, options.size);
  }
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 &&
      action.sa_handler != SIG_IGN) {
    return FailedPrecondition(
        "{}: the process must ignore SIGPIPE, or a peer that goes kills it",
        options.label);
  }
  const auto address = ParseAddress(options.bind_address);
  if (!address.ok()) return Annotate(address.status(), options.label);
  if (IsAnyAddress(*address)) {
    return InvalidArgument(
        "{}: the data plane must not listen on every address ({})",
        options.label, options.bind_address);
  }
  if (Status status = TryToBind(*address); !status.ok()) {
    return Annotate(status, fmt::format("{}: cannot bind to {}", options.label,
                                        options.bind_address));
  }
  if (options.backend != "auto" && options.backend != "nccl" &&
      !IsBuiltIn(options.backend)) {
    return LoadModule(options.backend, options).status();
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

RankOffer OfferOf(const CommunicatorOptions& options) {
  RankOffer offer = OfferNccl(options);
  offer.host = options.host.empty() ? HostIdentity() : options.host;
  offer.host_name = HostName(options.bind_address);
  offer.wish = options.backend;
  return offer;
}

StatusOr<std::unique_ptr<Communicator>> FormModule(
    const std::string& backend, const CommunicatorOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep_collective_module* module,
                            LoadModule(backend, options));
  Communicator* communicator = nullptr;
  Status error;
  if (!module->form(&options, &communicator, &error)) return error;
  return std::unique_ptr<Communicator>(communicator);
}

StatusOr<std::unique_ptr<Communicator>> FormChosen(
    const BackendChoice& choice, const CommunicatorOptions& options) {
  if (choice.backend == "shm") return shm::FormShm(options);
  if (choice.backend == "tcp") return tcp::FormTcp(options);
  if (choice.backend == "hierarchical") {
    return hierarchical::FormHierarchical(options, choice.hosts);
  }
  return FormModule(choice.backend, options);
}

std::string DescribeChoice(const BackendChoice& choice,
                           const std::string& algorithms) {
  // "shm: each of ..." after "backend shm: ..." says it twice.
  std::string_view how = algorithms;
  const std::string name = choice.backend + ": ";
  if (how.starts_with(name)) how.remove_prefix(name.size());
  std::string text = choice.why;
  if (!how.empty()) text.append("; ").append(how);
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> FormCommunicator(
    const CommunicatorOptions& options, std::string* choice) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options));
  const std::string& backend = options.backend;
  if (backend == "self" && options.size != 1) {
    return InvalidArgument("{}: backend self is for one rank, not for {}",
                           options.label, options.size);
  }
  if (options.size == 1) {
    if (!options.reduction_plan.empty()) {
      return WithReason(InvalidArgument("{}: the reduction plan is \"{}\", but "
                                        "a single rank has no peers",
                                        options.label, options.reduction_plan),
                        kReasonPlanRefused);
    }
    if (backend == "auto" || backend == "self" || IsBuiltIn(backend)) {
      return MakeSelfCommunicator(options.label);
    }
    return FormModule(backend, options);
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckGroup(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const BackendChoice chosen,
                            AgreeOnBackend(options, OfferOf(options)));
  CommunicatorOptions agreed = options;
  agreed.reduction_plan = chosen.plan;
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                            FormChosen(chosen, agreed));
  if (choice != nullptr) *choice = DescribeChoice(chosen, communicator->Plan());
  return communicator;
}

}  // namespace lockstep::worker::collective
