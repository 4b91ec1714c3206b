#include "server/store/record.h"

#include "common/wire/field_checker.h"
#include "server/store/record_fields.h"

namespace lockstep::server {
namespace {

// What it registered with.
StatusOr<NodeInfo> GetInfo(const v1::StoredNode& stored) {
  const v1::Node& node = stored.node();
  v1::Register registered;
  registered.set_node(node.name());
  registered.mutable_incarnation()->set_counter(node.incarnation());
  registered.mutable_incarnation()->set_nonce(stored.incarnation_nonce());
  registered.set_boot_id(node.boot_id());
  registered.set_hostname(node.hostname());
  registered.set_version(node.version());
  registered.set_address(node.address());
  registered.set_http_address(node.http_address());
  registered.set_http_tls(stored.http_tls());
  *registered.mutable_capacity() = node.capacity();
  *registered.mutable_gpus() = node.gpus();
  registered.set_limits_enforced(node.limits_enforced());
  registered.set_pool(node.pool());
  registered.set_limits_message(node.limits_message());
  registered.set_container_engine(node.container_engine());
  registered.set_checks_gpus(stored.checks_gpus());
  if (node.has_certificate_end_time()) {
    *registered.mutable_certificate_end_time() = node.certificate_end_time();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Registration registration, FromProto(registered));
  return std::move(registration.node);
}

Status GetNode(const v1::StoredNode& stored, NodeRecord* out) {
  const v1::Node& node = stored.node();
  LOCKSTEP_ASSIGN_OR_RETURN(out->info, GetInfo(stored));
  if (node.has_drain()) {
    Drain& drain = out->drain.emplace();
    drain.requester = node.drain().requester();
    drain.reason = node.drain().reason();
    LOCKSTEP_ASSIGN_OR_RETURN(drain.time, FromProto(node.drain().time()));
    if (stored.has_drain_grace()) {
      LOCKSTEP_ASSIGN_OR_RETURN(drain.grace, FromProto(stored.drain_grace()));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(GetList(node.events(), &out->events));
  LOCKSTEP_RETURN_IF_ERROR(GetList(node.missing_gpus(), &out->missing_gpus));
  LOCKSTEP_RETURN_IF_ERROR(
      GetList(stored.withheld_gpus(), &out->withheld_gpus));
  if (stored.has_approved()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out->approved,
                              FromProto(stored.approved(), "approved"));
  }
  if (node.has_offered()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out->offered,
                              FromProto(node.offered(), "offered"));
  }
  if (node.has_state_time()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out->state_time, FromProto(node.state_time()));
  }
  return OkStatus();
}

}  // namespace

v1::Node ToNodeMessage(const NodeRecord& node) {
  const NodeInfo& info = node.info;
  v1::Node out;
  out.set_name(info.name);
  out.set_hostname(info.hostname);
  out.set_address(info.address);
  out.set_http_address(info.http_address);
  out.set_version(info.version);
  out.set_boot_id(info.boot_id);
  out.set_incarnation(info.incarnation.counter);
  *out.mutable_capacity() = ToProto(info.capacity);
  for (const Gpu& gpu : info.gpus) *out.add_gpus() = ToProto(gpu);
  out.set_limits_enforced(info.limits_enforced);
  out.set_pool(info.pool);
  out.set_limits_message(info.limits_message);
  out.set_container_engine(info.container_engine);
  if (info.certificate_end_time) {
    *out.mutable_certificate_end_time() = ToProto(*info.certificate_end_time);
  }
  if (node.drain) {
    v1::Drain* drain = out.mutable_drain();
    drain->set_requester(node.drain->requester);
    drain->set_reason(node.drain->reason);
    *drain->mutable_time() = ToProto(node.drain->time);
    if (const auto deadline = node.drain->deadline()) {
      *drain->mutable_deadline() = ToProto(*deadline);
    }
  }
  PutList(node.events, out.mutable_events());
  for (const Gpu& gpu : node.missing_gpus) {
    *out.add_missing_gpus() = ToProto(gpu);
  }
  if (node.offered) *out.mutable_offered() = ToProto(*node.offered);
  if (node.state_time != WallTime{}) {
    *out.mutable_state_time() = ToProto(node.state_time);
  }
  return out;
}

std::string EncodeNode(const NodeRecord& node) {
  v1::StoredNode stored;
  *stored.mutable_node() = ToNodeMessage(node);
  stored.set_incarnation_nonce(node.info.incarnation.nonce);
  stored.set_http_tls(node.info.http_tls);
  stored.set_checks_gpus(node.info.checks_gpus);
  if (node.approved) *stored.mutable_approved() = ToProto(*node.approved);
  for (const Gpu& gpu : node.withheld_gpus) {
    *stored.add_withheld_gpus() = ToProto(gpu);
  }
  if (node.drain && node.drain->grace) {
    *stored.mutable_drain_grace() = ToProto(*node.drain->grace);
  }
  return stored.SerializeAsString();
}

StatusOr<NodeRecord> DecodeNode(std::string_view bytes) {
  const WithoutLimits reading;
  v1::StoredNode stored;
  LOCKSTEP_RETURN_IF_ERROR(Merge(bytes, "node", &stored));
  NodeRecord node;
  LOCKSTEP_RETURN_IF_ERROR(AsDataLoss(GetNode(stored, &node), "node"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(node.info.name, "node"));
  return node;
}

StatusOr<NodeRecord> DecodeNodeOfSchema1(std::string_view bytes) {
  const WithoutLimits reading;
  v1::Register stored;
  LOCKSTEP_RETURN_IF_ERROR(Merge(bytes, "node", &stored));
  auto registration = FromProto(stored);
  if (!registration.ok()) return AsDataLoss(registration.status(), "node");
  NodeRecord node;
  node.info = std::move(registration->node);
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(node.info.name, "node"));
  return node;
}

std::string EncodeRequest(const AnsweredRequest& request) {
  v1::StoredRequest stored;
  stored.set_client(request.client);
  stored.set_request_id(request.id);
  stored.set_method(request.method);
  stored.set_content_hash(request.content_hash);
  stored.set_response(request.response);
  *stored.mutable_time() = ToProto(request.time);
  return stored.SerializeAsString();
}

StatusOr<AnsweredRequest> DecodeRequest(std::string_view bytes) {
  const WithoutLimits reading;
  v1::StoredRequest stored;
  LOCKSTEP_RETURN_IF_ERROR(Merge(bytes, "request", &stored));
  AnsweredRequest request;
  request.client = stored.client();
  request.id = stored.request_id();
  request.method = stored.method();
  request.content_hash = stored.content_hash();
  request.response = stored.response();
  LOCKSTEP_ASSIGN_OR_RETURN(request.time, FromProto(stored.time()));
  return request;
}

}  // namespace lockstep::server
