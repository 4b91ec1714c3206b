#include "common/pki/authorisation.h"

#include <google/protobuf/descriptor.h>

#include <functional>
#include <utility>

#include "lockstep/v1/cluster.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/options.pb.h"
#include "lockstep/v1/package.pb.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep::pki {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using Admits = MethodRule::Admits;

StatusOr<MethodRule> RuleOf(const MethodDescriptor& method) {
  MethodRule rule;
  rule.unary = !method.client_streaming() && !method.server_streaming();
  switch (method.options().GetExtension(v1::role)) {
    case v1::ROLE_VIEWER:
      rule.role = UserRole::kViewer;
      return rule;
    case v1::ROLE_SUBMITTER:
      rule.role = UserRole::kSubmitter;
      return rule;
    case v1::ROLE_ADMIN:
      rule.role = UserRole::kAdmin;
      return rule;
    case v1::ROLE_WORKER:
      rule.admits = Admits::kWorkers;
      return rule;
    default:
      return FailedPrecondition(
          "method {} has no role: give it an option "
          "(lockstep.v1.role)",
          method.full_name());
  }
}

// gRPC's own services lack the option and are harmless: they report health and
// the content of the public .proto files.
void AddBuiltIn(std::map<std::string, MethodRule, std::less<>>* rules) {
  const MethodRule unary = {Admits::kAnyCaller, UserRole::kViewer, true};
  const MethodRule stream = {Admits::kAnyCaller, UserRole::kViewer, false};
  rules->emplace("/grpc.health.v1.Health/Check", unary);
  rules->emplace("/grpc.health.v1.Health/Watch", stream);
  rules->emplace(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", stream);
}

Status CheckRule(const Identity& caller, const MethodRule& rule,
                 std::string_view method) {
  switch (rule.admits) {
    case Admits::kAnyCaller:
      return OkStatus();
    case Admits::kWorkers:
      if (caller.kind == Identity::Kind::kWorker) return OkStatus();
      return PermissionDenied("{} may not call {}: it is for workers only",
                              Describe(caller), method);
    case Admits::kUsers:
      break;
  }
  if (caller.kind == Identity::Kind::kUser && caller.role >= rule.role) {
    return OkStatus();
  }
  return PermissionDenied(
      "{} may not call {}: it requires the role {} (`lockstep cert "
      "issue user NAME --role {}`)",
      Describe(caller), method, UserRoleName(rule.role),
      UserRoleName(rule.role));
}

}  // namespace

std::vector<const ServiceDescriptor*> LockstepServices() {
  std::vector<const ServiceDescriptor*> services;
  for (const FileDescriptor* file :
       {v1::GetJobRequest::descriptor()->file(),
        v1::GetNodeRequest::descriptor()->file(),
        v1::Register::descriptor()->file(),
        v1::UploadPackageRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      services.push_back(file->service(i));
    }
  }
  return services;
}

StatusOr<AuthorisationTable> AuthorisationTable::Create(
    const std::vector<const ServiceDescriptor*>& services) {
  AuthorisationTable table;
  AddBuiltIn(&table.rules_);
  for (const ServiceDescriptor* service : services) {
    for (int i = 0; i < service->method_count(); ++i) {
      const MethodDescriptor& method = *service->method(i);
      LOCKSTEP_ASSIGN_OR_RETURN(const MethodRule rule, RuleOf(method));
      table.rules_.emplace(
          fmt::format("/{}/{}", service->full_name(), method.name()), rule);
    }
  }
  return table;
}

const MethodRule* AuthorisationTable::Find(std::string_view method) const {
  const auto it = rules_.find(method);
  return it == rules_.end() ? nullptr : &it->second;
}

Status AuthorisationTable::Authorise(const Identity& caller,
                                     std::string_view cluster,
                                     std::string_view method) const {
  const MethodRule* const rule = Find(method);
  if (rule == nullptr) {
    return Unimplemented("there is no method {}: is the caller newer?", method);
  }
  if (caller.kind == Identity::Kind::kInsecure) return OkStatus();
  if (caller.cluster != cluster) {
    return Unauthenticated("{} belongs to cluster {}, but this is {}",
                           Describe(caller), caller.cluster, cluster);
  }
  return CheckRule(caller, *rule, method);
}

}  // namespace lockstep::pki
